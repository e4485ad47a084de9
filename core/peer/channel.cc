#include "core/peer/channel.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"

namespace macaw::peer {
namespace {

bool WouldWait() { return errno == EAGAIN || errno == EINTR; }

ssize_t SendWithFiles(int socket, std::string& bytes, std::span<const int> files) {
  iovec part = {bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(Channel::kMostFiles * sizeof(int))> control = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(files.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(files.size_bytes());
  std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  return ::sendmsg(socket, &message, MSG_NOSIGNAL);
}

}  // namespace

absl::StatusOr<Channel::Ends> Channel::Make() {
  std::array<int, 2> ends;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return absl::ErrnoToStatus(errno, "cannot make a channel to another process");
  Ends made{Channel(Fd(ends[0])), Fd(ends[1])};
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0)
    return absl::ErrnoToStatus(errno, "cannot make a channel to another process");
  return made;
}

bool Channel::Send(std::string& unsent, std::span<const int>& files) {
  size_t done = 0;
  bool open = true;
  while (done < unsent.size()) {
    const ssize_t sent = files.empty() ? ::send(socket_.get(), unsent.data() + done,
                                                unsent.size() - done, MSG_NOSIGNAL)
                                       : SendWithFiles(socket_.get(), unsent, files);
    if (sent < 0) {
      open = WouldWait();
      break;
    }
    files = {};
    done += static_cast<size_t>(sent);
  }
  unsent.erase(0, done);
  return open;
}

bool Channel::Receive(size_t longest) {
  std::array<char, 1 << 16> piece;
  while (received_.size() <= longest) {
    const ssize_t got = ::recv(socket_.get(), piece.data(), piece.size(), 0);
    if (got == 0) return false;
    if (got < 0) return WouldWait();
    received_.append(piece.data(), static_cast<size_t>(got));
    if (piece.size() > static_cast<size_t>(got)) break;  // there was no more
  }
  return true;
}

std::optional<std::string> Channel::TakeLine() {
  const size_t end = received_.find('\n', searched_);
  searched_ = end == std::string::npos ? received_.size() : 0;
  if (end == std::string::npos) return std::nullopt;
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

}  // namespace macaw::peer
