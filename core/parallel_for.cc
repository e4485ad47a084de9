#include "core/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/synchronization/notification.h"
#include "core/cores.h"
#include "core/executor.h"

namespace macaw {
namespace {

// One thread for each core but the caller's, or the first `most` of them. They start when they are
// needed for the first time and are never joined.
std::span<const std::unique_ptr<Executor>> Helpers(size_t most) {
  static const auto* const helpers = [] {
    auto* const made = new std::vector<std::unique_ptr<Executor>>();
    try {
      for (unsigned i = 1; i < UsableCores(); ++i)
        made->push_back(std::make_unique<Executor>("parallel", 1));
    } catch (const std::system_error&) {
      // The system gives no more threads, so there are fewer.
    }
    return made;
  }();
  return std::span(*helpers).first(std::min(most, helpers->size()));
}

// The pieces of one call. A helper may come to it after the call has returned and then finds no
// piece left, so it never touches `work`.
class Job {
 public:
  Job(size_t count, size_t grain, absl::FunctionRef<void(size_t, size_t)> work)
      : count_(count), grain_(grain), pieces_((count - 1) / grain + 1), work_(work) {}

  size_t pieces() const { return pieces_; }
  void Help() {
    for (size_t piece; (piece = next_.fetch_add(1)) < pieces_;) {
      const size_t begin = piece * grain_;
      work_(begin, begin + std::min(grain_, count_ - begin));
      if (done_.fetch_add(1) + 1 == pieces_) all_done_.Notify();
    }
  }
  void Wait() { all_done_.WaitForNotification(); }

 private:
  const size_t count_, grain_, pieces_;
  const absl::FunctionRef<void(size_t, size_t)> work_;
  std::atomic<size_t> next_ = 0;
  std::atomic<size_t> done_ = 0;
  absl::Notification all_done_;
};

}  // namespace

void ParallelFor(size_t count, size_t grain, absl::FunctionRef<void(size_t, size_t)> work,
                 size_t threads) {
  if (count == 0) return;
  if (count <= grain) return work(0, count);
  const auto job = std::make_shared<Job>(count, grain, work);
  const size_t most = std::min(job->pieces(), threads) - 1;
  for (const std::unique_ptr<Executor>& helper : Helpers(most)) {
    helper->Post([job] { job->Help(); });
  }
  job->Help();
  job->Wait();
}

void ParallelCopy(std::span<const std::byte> from, std::byte* to) {
  ParallelFor(from.size(), size_t{1} << 20, [&](size_t begin, size_t end) {
    std::memcpy(to + begin, from.data() + begin, end - begin);
  });
}

}  // namespace macaw
