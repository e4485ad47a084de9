#include "bench/load/device.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "absl/strings/str_cat.h"
#include "bench/programs.h"
#include "core/executor.h"
#include "data/subset.h"
#include "proto/fleet/client_table.h"

namespace macaw::bench {
namespace {

constexpr Duration kPoll = std::chrono::seconds(30);  // as worker/session.cc
constexpr double kBeatEvery = 1;  // seconds; as worker/heartbeats.h, until the server says
constexpr Duration kPause = std::chrono::milliseconds(500);

}  // namespace

void Device::Register() {
  const auto rows = data::SubsetOf(dataset_, {number_, number_ + 1, /*central_test=*/false});
  Check(rows.status(), "rows");
  const data::DatasetInfo& info = (*rows)->info();
  fleet::ClientTable table;
  table.rows = {(*rows)->Examples(ClientId(0), data::Split::kTrain)};
  table.names = {(*rows)->ClientName(ClientId(0))};
  fleet::RegisterRequest request;
  request.name = absl::StrCat("device-", number_);
  request.incarnation = number_ + 1;
  request.profile = training_.profile();
  request.input_shape = info.input_shape;
  request.classes = info.classes;
  request.data_digest = info.digest;
  request.clients = 1;
  request.table = fleet::Blob::Of(table.Encode());
  request.owner = true;
  const double begin = Now();
  auto reply = link_->Register(request);
  while (absl::IsUnavailable(reply.status())) {
    Repeat();
    reply = link_->Register(request);
  }
  Check(reply.status(), "register");
  calls_.registering.Add(Now() - begin);
  session_ = reply->session;
}

void Device::Run() {
  Work();
  over_ = true;
}

double Device::Beat() {
  fleet::HeartbeatRequest request;
  request.session = session_;
  request.progress = progress_;
  request.memory_bytes = 1 << 24;
  const double begin = Now();
  const auto reply = link_->Heartbeat(request);
  if (reply.ok()) {
    calls_.beat.Add(Now() - begin);
    if (reply->heartbeat_every > Duration{}) return ToSeconds(reply->heartbeat_every);
  } else if (!over_) {
    ++calls_.lost_beats;
  }
  return kBeatEvery;
}

void Device::Work() {
  std::optional<fleet::LeaseReply> reply;
  while (true) {
    if (!reply.has_value()) reply = Lease();
    const fleet::LeaseReply work = *std::exchange(reply, std::nullopt);
    if (work.next == fleet::Next::kFinished) return;
    if (work.next == fleet::Next::kRegister)
      Check(absl::AbortedError("the server has forgotten a device"), "lease");
    if (work.training.has_value()) reply = TrainAndCommit(*work.training);
  }
}

fleet::LeaseRequest Device::Ask(Duration wait) const {
  fleet::LeaseRequest request;
  request.session = session_;
  request.wanted = 1;
  request.wait = wait;
  return request;
}

void Device::Repeat() {
  ++calls_.repeated;
  std::this_thread::sleep_for(kPause);
}

fleet::LeaseReply Device::Lease() {
  while (true) {
    auto reply = link_->Lease(Ask(kPoll));
    if (reply.ok()) return *std::move(reply);
    if (!absl::IsUnavailable(reply.status())) Check(reply.status(), "lease");
    if (calls_.gone) {
      ++calls_.not_told;
      fleet::LeaseReply over;
      over.next = fleet::Next::kFinished;
      return over;
    }
    Repeat();
  }
}

std::optional<fleet::LeaseReply> Device::TrainAndCommit(const fleet::TrainingLease& lease) {
  const auto phase = training_.Open(lease);
  double begin = Now();
  for (fleet::Blob& channel : phase->broadcast.channels) {
    auto blob = link_->Fetch(channel);
    Check(blob.status(), "fetch");
    channel = *std::move(blob);
  }
  calls_.fetch.Add(Now() - begin);
  training_.ReadBroadcast(*phase);
  begin = Now();
  fleet::CommitRequest request;
  request.session = session_;
  request.commit_id = ++commits_;
  request.part = training_.Train(*phase, lease.assignments, number_);
  calls_.train.Add(Now() - begin);
  ++progress_;
  request.ask = Ask(/*wait=*/{});  // so that the time is the commit's alone
  begin = Now();
  while (true) {
    auto reply = link_->Commit(request);
    if (absl::IsUnavailable(reply.status())) {
      if (calls_.gone) return std::nullopt;  // Lease ends
      Repeat();
      continue;
    }
    Check(reply.status(), "commit");
    calls_.commit.Add(Now() - begin);
    if (reply->verdict != fleet::Verdict::kAccepted &&
        reply->verdict != fleet::Verdict::kDuplicate) {
      Check(absl::AbortedError(reply->reason), "commit");
    }
    return std::move(reply->lease);
  }
}

Hearts::Hearts(std::vector<std::unique_ptr<Device>>& devices, size_t count) : devices_(devices) {
  for (size_t t = 0; t < kThreads; ++t) threads_.emplace_back([this, t, count] { Loop(t, count); });
}

Hearts::~Hearts() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Hearts::Loop(size_t thread, size_t count) {
  NameThisThread("hearts");
  std::set<std::pair<double, size_t>> due;  // by time
  for (size_t i = thread; i < count; i += kThreads) {
    const double share = static_cast<double>(i) / static_cast<double>(count);
    due.emplace(Now() + kBeatEvery * share, i);
  }
  while (!stop_ && !due.empty()) {
    const auto [time, device] = *due.begin();
    due.erase(due.begin());
    const double left = time - Now();
    if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
    double late = late_;
    while (-left > late && !late_.compare_exchange_weak(late, -left)) continue;
    if (devices_[device]->over()) continue;
    const double every = devices_[device]->Beat();
    due.emplace(std::max(time + every, Now()), device);
  }
}

}  // namespace macaw::bench
