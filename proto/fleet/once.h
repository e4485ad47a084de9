#pragma once

#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "proto/fleet/link.h"

namespace macaw::fleet {

// Makes a Reply out of `answer` that calls it exactly once: with what the handler says, or, when
// the handler lets go of the Reply without calling it, with kUnavailable. So a caller never waits
// for an answer that cannot come.
template <typename T>
Reply<T> AnswerOnce(absl::AnyInvocable<void(absl::StatusOr<T>) &&> answer) {
  class Once {
   public:
    explicit Once(absl::AnyInvocable<void(absl::StatusOr<T>) &&> f) : f_(std::move(f)) {}
    Once(Once&& other) noexcept : f_(std::exchange(other.f_, nullptr)) {}
    Once& operator=(Once&&) = delete;
    ~Once() {
      if (f_) std::move(f_)(absl::UnavailableError("the server let go of the call; repeat it"));
    }
    void operator()(absl::StatusOr<T> value) && { std::exchange(f_, nullptr)(std::move(value)); }

   private:
    absl::AnyInvocable<void(absl::StatusOr<T>) &&> f_;
  };
  return Once(std::move(answer));
}

}  // namespace macaw::fleet
