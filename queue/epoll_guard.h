// Keeps libzmq from ending the process over a peer that leaves while it is not read.
//
// The kernel tells of a hang-up also who does not poll for input. libzmq 4.3 then marks a
// connection whose pipe is full as failed, and when it reads on, a PING among what had come before
// is an assertion that fails (!_io_error; libzmq's issues 4364 and 4841): any peer could do that.
// So epoll_ctl and epoll_wait are this file's in the whole process. Towards libzmq they tell of a
// hang-up as of input, and keep it back while the socket is not read. Everybody else's calls are
// passed on as they are.
#pragma once

namespace batchmill {

// Called by whoever has sockets of libzmq, so that the linker does not leave the guard out.
void guard_epoll();

}  // namespace batchmill
