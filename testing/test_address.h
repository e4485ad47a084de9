#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <string>

namespace macaw::wire {

// A fresh folder with a socket path in it; removed at the end (the server removes its socket).
class SocketFolder {
 public:
  SocketFolder() {
    char name[] = "/tmp/macaw wire XXXXXX";  // a space, because paths have them
    folder_ = mkdtemp(name);
  }
  ~SocketFolder() {
    unlink(path().c_str());
    rmdir(folder_.c_str());
  }
  const std::string& folder() const { return folder_; }
  std::string path() const { return folder_ + "/s"; }
  std::string address() const { return "unix:" + path(); }

 private:
  std::string folder_;
};

}  // namespace macaw::wire
