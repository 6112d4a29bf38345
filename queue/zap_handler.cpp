#include "queue/zap_handler.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace batchmill {
namespace {

constexpr std::size_t kKeyBytes = 32;
// Frames of a request: version, id, domain, address, routing id, mechanism, credentials.
constexpr std::size_t kId = 1, kDomainFrame = 2, kMechanism = 5, kCredentials = 6, kFrames = 7;

}  // namespace

ZapHandler::ZapHandler(zmq::context_t& context, std::function<bool(const std::string& key)> allowed)
    : allowed_(std::move(allowed)), socket_(context, zmq::socket_type::rep) {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind("inproc://zeromq.zap.01");
}

void ZapHandler::answer() {
  while (true) {
    std::vector<std::string> frames;
    zmq::message_t frame;
    if (!socket_.recv(frame, zmq::recv_flags::dontwait)) return;
    frames.push_back(frame.to_string());
    while (frame.more()) {
      if (!socket_.recv(frame)) return;
      frames.push_back(frame.to_string());
    }
    std::string key;
    const bool local = frames.size() > kMechanism && frames[kDomainFrame] == kWithoutKeys &&
                       frames[kMechanism] == "NULL";
    if (frames.size() == kFrames && frames[kDomainFrame] == kWithKeys &&
        frames[kMechanism] == "CURVE" && frames[kCredentials].size() == kKeyBytes) {
      std::array<char, 41> text = {};
      zmq_z85_encode(text.data(),
                     reinterpret_cast<const std::uint8_t*>(frames[kCredentials].data()), kKeyBytes);
      key = text.data();
    }
    const bool good = local || (!key.empty() && allowed_(key));
    const std::string id = frames.size() > kId ? frames[kId] : "";
    const std::array<std::string, 6> reply = {
        "1.0", id, good ? "200" : "400", good ? "" : "not allowed", good ? key : "", ""};
    for (std::size_t i = 0; i < reply.size(); ++i) {
      const bool last = i + 1 == reply.size();
      socket_.send(zmq::buffer(reply[i]), last ? zmq::send_flags::none : zmq::send_flags::sndmore);
    }
  }
}

std::string ZapHandler::key_of(const zmq::message_t& frame) {
  const char* const user = zmq_msg_gets(frame.handle(), "User-Id");
  return user == nullptr ? "" : user;
}

}  // namespace batchmill
