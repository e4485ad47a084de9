#include "models/one_thread.h"

#include <ATen/Parallel.h>

#include <exception>
#include <mutex>

namespace macaw::models {

void UseOneThread() {
  thread_local const bool intra_op = [] {
    at::set_num_threads(1);
    return true;
  }();
  static std::once_flag inter_op;
  std::call_once(inter_op, [] {
    try {
      at::set_num_interop_threads(1);
    } catch (const std::exception&) {
      // The pool was already used. None of our work runs on it, so its size cannot change a result.
    }
  });
  static_cast<void>(intra_op);
}

}  // namespace macaw::models
