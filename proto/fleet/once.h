#pragma once

#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "proto/fleet/link.h"

namespace macaw::fleet {

// Makes a Reply that calls `answer` exactly once: with the handler's value, or with kUnavailable if
// the handler destroys the Reply without calling it. A caller therefore never waits for an answer
// that cannot come.
template <typename T>
Reply<T> AnswerOnce(absl::AnyInvocable<void(absl::StatusOr<T>) &&> answer) {
  class Once {
   public:
    explicit Once(absl::AnyInvocable<void(absl::StatusOr<T>) &&> f) : f_(std::move(f)) {}
    Once(Once&& other) noexcept : f_(std::exchange(other.f_, nullptr)) {}
    Once& operator=(Once&&) = delete;
    ~Once() {
      if (f_) std::move(f_)(absl::UnavailableError("the server dropped the call; retry"));
    }
    void operator()(absl::StatusOr<T> value) && { std::exchange(f_, nullptr)(std::move(value)); }

   private:
    absl::AnyInvocable<void(absl::StatusOr<T>) &&> f_;
  };
  return Once(std::move(answer));
}

}  // namespace macaw::fleet
