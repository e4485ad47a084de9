#include "testing/local_link.h"

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/fleet/link.h"
#include "proto/fleet/once.h"

namespace macaw::fleet {
namespace {

// A handler in this process that has not answered for this long is broken, not slow.
constexpr Duration kAnswerTimeout = std::chrono::seconds(60);

// Outlives the link, because an answer may come after the link has gone.
struct Shared {
  absl::Mutex mutex;
  bool shut ABSL_GUARDED_BY(mutex) = false;
};

template <typename T>
struct Slot {
  std::optional<absl::StatusOr<T>> answer;  // guarded by Shared::mutex
};

class LocalLink final : public FleetLink {
 public:
  LocalLink(FleetHandler& handler, Caller caller) : handler_(handler), caller_(std::move(caller)) {}

#define MACAW_CALL(Name)                                                        \
  absl::StatusOr<Name##Reply> Name(const Name##Request& request) override {     \
    return Call<Name##Reply>(                                                   \
        [&](auto reply) { handler_.Name(caller_, request, std::move(reply)); }, \
        PatienceOf(request) + kAnswerTimeout);                                  \
  }
  MACAW_FLEET_CALLS(MACAW_CALL)
#undef MACAW_CALL

  absl::StatusOr<Blob> Fetch(const Blob& blob) override {
    {
      absl::MutexLock lock(&shared_->mutex);
      if (shared_->shut) return Gone();
    }
    if (blob.bytes != nullptr) return blob;
    if (!blob.named()) return absl::InvalidArgumentError("fetch: the blob has no name");
    auto bytes = handler_.FindBlob(caller_, blob.digest);
    if (bytes == nullptr) {
      return absl::NotFoundError(absl::StrCat("blob ", blob.digest.Hex(), " is no longer served"));
    }
    return Blob{blob.digest, bytes->size(), std::move(bytes)};
  }

  void Shutdown() override {
    absl::MutexLock lock(&shared_->mutex);
    shared_->shut = true;
  }

 private:
  static absl::Status Gone() { return absl::CancelledError("the link is shut down"); }

  template <typename T, typename F>
  absl::StatusOr<T> Call(F&& start, Duration timeout) {
    auto slot = std::make_shared<Slot<T>>();
    {
      absl::MutexLock lock(&shared_->mutex);
      if (shared_->shut) return Gone();
    }
    start(AnswerOnce<T>([shared = shared_, slot](absl::StatusOr<T> answer) {
      absl::MutexLock lock(&shared->mutex);
      slot->answer = std::move(answer);
    }));
    absl::MutexLock lock(&shared_->mutex);
    const auto ready = [&]() ABSL_SHARED_LOCKS_REQUIRED(shared_->mutex) {
      return slot->answer.has_value() || shared_->shut;
    };
    if (!shared_->mutex.AwaitWithTimeout(absl::Condition(&ready), absl::FromChrono(timeout))) {
      return absl::DeadlineExceededError("the handler did not answer; the call may be carried out");
    }
    if (slot->answer.has_value()) return *std::move(slot->answer);
    return Gone();
  }

  FleetHandler& handler_;
  const Caller caller_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace

std::unique_ptr<FleetLink> MakeLocalLink(FleetHandler& handler, Caller caller) {
  return std::make_unique<LocalLink>(handler, std::move(caller));
}

}  // namespace macaw::fleet
