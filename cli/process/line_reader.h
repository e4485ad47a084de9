#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

namespace macaw::cli {

// Reads lines from a descriptor on which they may arrive in pieces. One thread.
class LineReader {
 public:
  // Reads once (blocks unless something is there) and returns the lines that are complete now.
  std::vector<std::string> Read(int fd) {
    char buffer[1 << 16];
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) ended_ = true;
    if (got > 0) pending_.append(buffer, static_cast<size_t>(got));
    std::vector<std::string> lines;
    size_t begin = 0;
    for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      lines.push_back(pending_.substr(begin, end - begin));
    }
    pending_.erase(0, begin);
    return lines;
  }
  bool ended() const { return ended_; }  // the other side has closed

 private:
  std::string pending_;
  bool ended_ = false;
};

}  // namespace macaw::cli
