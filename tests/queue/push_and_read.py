"""Pushes a JSONL file to batchmill and prints its result lines. usage: push_and_read.py ENDPOINT FILE"""
import json, sys, uuid, zmq
socket = zmq.Context().socket(zmq.DEALER)
socket.connect(sys.argv[1])
def send(payload=None, **header):
    socket.send_multipart([json.dumps(header).encode()] + ([payload] if payload is not None else []))
def receive(op):  # the next message of this kind; acks and the like in between are skipped
    header = {}
    while header.get("op") != op:
        frames = socket.recv_multipart()
        header = json.loads(frames[0])
        if header["op"] == "error": sys.exit(f"{header['code']}: {header['message']}")
    return header, b"".join(frames[1:])
send(op="hello", version=1, client="push_and_read")
send(op="open", id="1", key=str(uuid.uuid4()))
upload, content = receive("opened")[0], open(sys.argv[2], "rb").read()
job, sent, limit = (upload[name] for name in ("job", "offset", "limit"))
while sent < len(content):
    if chunk := content[sent:min(sent + 1_000_000, limit)]:
        send(chunk, op="data", job=job, offset=sent)
        sent += len(chunk)
    else:
        limit = receive("ack")[0]["limit"]
send(op="end", job=job, bytes=sent)
page = receive("sealed")[0] | {"next": 0, "at_end": False}
while not (page["at_end"] and page["ended"]):
    send(op="request", id="2", what="results", job=job, side="all", **{"from": page["next"]})
    page, lines = receive("response")
    sys.stdout.buffer.write(lines)
    socket.poll(200 if page["at_end"] else 0)  # nothing new: ask again in a while
