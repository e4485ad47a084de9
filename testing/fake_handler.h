#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/random.h"
#include "proto/fleet/link.h"
#include "testing/forwarding.h"

namespace macaw::fleet {

inline Blob RandomBlob(size_t size, uint64_t seed) {
  AlignedBuffer buffer(size);
  RandomStream stream({.seed = seed});
  for (std::byte& b : buffer.bytes()) b = static_cast<std::byte>(stream.NextU32());
  return Blob::Of(std::move(buffer));
}

// A server that answers at once with what the test has set, parks polls when told, and remembers
// what it was asked. It does not promise anything about leases or rounds.
class FakeHandler final : public AnsweringHandler {
 public:
  void Hello(const Caller& caller, HelloRequest request, Reply<HelloReply> reply) override {
    {
      absl::MutexLock lock(&mutex_);
      caller_ = caller;
    }
    std::move(reply)(HelloReply{1, 0, "fake for " + request.program, 1 << 20, 1 << 30});
  }
  void Register(const Caller&, RegisterRequest request, Reply<RegisterReply> reply) override {
    RegisterReply answer;
    answer.session = SessionId(7);
    {
      absl::MutexLock lock(&mutex_);
      registered_.push_back(std::move(request));
    }
    std::move(reply)(std::move(answer));
  }
  void Lease(const Caller&, LeaseRequest request, Reply<LeaseReply> reply) override {
    LeaseReply answer;
    {
      absl::MutexLock lock(&mutex_);
      last_wait_ = request.wait;
      if (drop_) return;  // destroys the reply unanswered
      if (park_) {
        parked_.push_back(std::move(reply));
        return;
      }
      answer = lease_;
    }
    std::move(reply)(std::move(answer));
  }
  void Heartbeat(const Caller&, HeartbeatRequest request, Reply<HeartbeatReply> reply) override {
    HeartbeatReply answer;
    answer.dropped = request.held;
    std::move(reply)(std::move(answer));
  }
  void Commit(const Caller&, CommitRequest request, Reply<CommitReply> reply) override {
    CommitReply answer{.verdict = Verdict::kAccepted};
    {
      absl::MutexLock lock(&mutex_);
      if (park_commits_) {
        parked_commits_.emplace_back(std::move(request), std::move(reply));
        return;
      }
      if (request.ask.has_value()) {
        answer.lease = lease_;
        last_wait_ = request.ask->wait;
      }
      request.hold.reset();  // the commit is judged
      committed_.push_back(std::move(request));
    }
    std::move(reply)(std::move(answer));
  }
  void Release(const Caller&, ReleaseRequest request, Reply<ReleaseReply> reply) override {
    {
      absl::MutexLock lock(&mutex_);
      released_.push_back(std::move(request));
    }
    std::move(reply)(absl::NotFoundError("release: no such session"));
  }
  void Offer(const Caller&, UploadOffer offer, Reply<UploadVerdict> reply) override {
    UploadVerdict verdict;
    {
      absl::MutexLock lock(&mutex_);
      offers_.push_back(offer);
      verdict = verdict_;
    }
    std::move(reply)(verdict);
  }
  bool Knows(SessionId session) const override {
    absl::MutexLock lock(&mutex_);
    return unknown_ != session;
  }
  std::shared_ptr<const AlignedBuffer> FindBlob(const Caller&, const Digest& digest) override {
    absl::MutexLock lock(&mutex_);
    const auto it = served_.find(digest);
    return it == served_.end() ? nullptr : it->second;
  }
  void Waited(const Caller& caller, Duration time) override {
    absl::MutexLock lock(&mutex_);
    waited_[caller.node] += time;
  }

  void ServeAs(const Digest& digest, std::shared_ptr<const AlignedBuffer> bytes) {
    absl::MutexLock lock(&mutex_);
    served_[digest] = std::move(bytes);
  }
  void Serve(const Blob& blob) { ServeAs(blob.digest, blob.bytes); }
  void SetLease(LeaseReply lease) {
    absl::MutexLock lock(&mutex_);
    lease_ = std::move(lease);
  }
  void SetVerdict(UploadVerdict verdict) {
    absl::MutexLock lock(&mutex_);
    verdict_ = verdict;
  }
  Caller caller() {  // of the last Hello
    absl::MutexLock lock(&mutex_);
    return caller_;
  }
  void ParkPolls() {
    absl::MutexLock lock(&mutex_);
    park_ = true;
  }
  // Keeps commits as they come, unjudged.
  void ParkCommits(bool park) {
    absl::MutexLock lock(&mutex_);
    park_commits_ = park;
  }
  std::vector<std::pair<CommitRequest, Reply<CommitReply>>> AwaitParkedCommits() {
    absl::MutexLock lock(&mutex_);
    const auto there = [this]()
                           ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !parked_commits_.empty(); };
    mutex_.Await(absl::Condition(&there));
    return std::exchange(parked_commits_, {});
  }
  void DropPolls() {
    absl::MutexLock lock(&mutex_);
    drop_ = true;
  }
  void AwaitParked(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return parked_.size() >= count; };
    mutex_.Await(absl::Condition(&there));
  }
  std::vector<Reply<LeaseReply>> TakeParked() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(parked_, {});
  }
  std::vector<CommitRequest> TakeCommitted() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(committed_, {});
  }
  std::vector<ReleaseRequest> TakeReleased() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(released_, {});
  }
  // Every session is open but this one.
  void Forget(SessionId session) {
    absl::MutexLock lock(&mutex_);
    unknown_ = session;
  }
  std::vector<RegisterRequest> TakeRegistered() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(registered_, {});
  }
  std::vector<UploadOffer> offers() {
    absl::MutexLock lock(&mutex_);
    return offers_;
  }
  std::map<std::string, Duration> waited() {  // for their turns to download, by node
    absl::MutexLock lock(&mutex_);
    return waited_;
  }
  Duration last_wait() {
    absl::MutexLock lock(&mutex_);
    return last_wait_;
  }

 private:
  mutable absl::Mutex mutex_;
  Caller caller_ ABSL_GUARDED_BY(mutex_);
  std::optional<SessionId> unknown_ ABSL_GUARDED_BY(mutex_);
  std::vector<ReleaseRequest> released_ ABSL_GUARDED_BY(mutex_);
  bool park_ ABSL_GUARDED_BY(mutex_) = false;
  bool park_commits_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::pair<CommitRequest, Reply<CommitReply>>> parked_commits_ ABSL_GUARDED_BY(mutex_);
  bool drop_ ABSL_GUARDED_BY(mutex_) = false;
  UploadVerdict verdict_ ABSL_GUARDED_BY(mutex_) = UploadVerdict::kSend;
  LeaseReply lease_ ABSL_GUARDED_BY(mutex_);
  Duration last_wait_ ABSL_GUARDED_BY(mutex_){};
  std::vector<Reply<LeaseReply>> parked_ ABSL_GUARDED_BY(mutex_);
  std::vector<CommitRequest> committed_ ABSL_GUARDED_BY(mutex_);
  std::vector<RegisterRequest> registered_ ABSL_GUARDED_BY(mutex_);
  std::vector<UploadOffer> offers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Duration> waited_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, std::shared_ptr<const AlignedBuffer>> served_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::fleet
