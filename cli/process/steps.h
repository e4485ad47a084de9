#pragma once

#include <functional>
#include <string>
#include <thread>

#include "core/fd.h"
#include "core/ids.h"

namespace macaw::cli {

// A thread that reads what a stepwise run is told, a line each: "go ROUND" (rounds up to this one
// may be done) or "stop WHY". Other lines are left out, with a warning.
class StepThread {
 public:
  struct Steps {
    std::function<void(Round)> go_on_to;
    std::function<void(std::string why)> stop;
    std::function<void()> ended;  // the other side has closed the pipe
  };
  // `fd` must outlive this.
  StepThread(int fd, Steps steps);
  ~StepThread();  // stops and joins

 private:
  Fd stop_;
  std::thread thread_;
};

}  // namespace macaw::cli
