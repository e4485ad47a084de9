// NCCL through functions of our own that compute on fake devices, and hang, fail, are late or die
// at any call. Whatever they do, the sum is right or a device counts as lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregation/cuda/sum_kernels.h"
#include "aggregation/device_sum.h"
#include "core/random.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/nccl_collective.h"
#include "testing/fake_clock.h"
#include "testing/fake_device.h"
#include "tests/aggregation/cohort.h"

namespace macaw::aggregation {
namespace {

using device::Collective;
using device::LoadNccl;
using device::MakeHostCollective;
using device::MakeNcclCollective;
using device::Memory;
using device::NcclApi;
using device::NcclOptions;
using device::NcclPeer;
using device::NcclSeams;
using device::NcclVersionText;
using device::WithFallback;
using ::testing::HasSubstr;
using testing_support::FakeClock;
using testing_support::FakeDevice;
using testing_support::FakeDeviceOptions;

enum class Fault { kNone, kFails, kLate, kHangs, kDies, kStuck };
const char* Name(Fault fault) {
  constexpr const char* kNames[] = {"none", "fails", "late", "hangs", "dies", "stuck"};
  return kNames[static_cast<int>(fault)];
}

// A library that stands for NCCL. `fault` happens at its call number `at`; calls are those that
// could fail, in their order.
struct Shim {
  Fault fault = Fault::kNone;
  int at = 0;

  struct Communicator {
    int rank = 0;
    int late = 0;  // looks until it is no longer in progress
    bool dead = false;
    bool ended = false;
  };
  struct Work {
    const void* from = nullptr;
    void* to = nullptr;
    size_t count = 0;
    ncclRedOp_t operation = ncclSum;
    device::Queue* queue = nullptr;
  };
  int calls = 0;
  int depth = 0;  // of groups
  int looks_left = 0;
  bool hangs = false, aborted = false, stuck = false;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<Work> group;  // since GroupStart
  std::vector<Work> work;   // begun, not done
  int aborts = 0, destroyed = 0, misuses = 0;
  FakeClock clock;

  // Whether the fault happens now.
  bool Now() { return calls++ == at && fault != Fault::kNone; }
};
Shim* shim = nullptr;

Shim::Communicator& Of(ncclComm_t communicator) {
  auto& mine = *reinterpret_cast<Shim::Communicator*>(communicator);
  if (mine.ended) ++shim->misuses;  // used after its end
  return mine;
}

// What a call answers under the shim's fault.
ncclResult_t Answer() {
  if (!shim->Now()) return ncclSuccess;
  switch (shim->fault) {
    case Fault::kFails:
      return ncclSystemError;
    case Fault::kLate:
      shim->looks_left = 5;
      for (const auto& one : shim->communicators) one->late = 3 + one->rank;
      return ncclInProgress;
    case Fault::kHangs:
    case Fault::kStuck:
      shim->hangs = true;
      shim->stuck = shim->fault == Fault::kStuck;
      return ncclInProgress;
    default:
      for (const auto& one : shim->communicators) one->dead = true;
      shim->hangs = true;
      return ncclInProgress;
  }
}

// All streams' work at once, as NCCL does it when all ranks have come.
void Compute() {
  if (shim->work.empty()) return;
  std::vector<std::vector<std::byte>> parts;
  for (const Shim::Work& work : shim->work) {
    std::vector<std::byte>& part = parts.emplace_back(work.count * 8);
    work.queue->CopyOut(part, static_cast<const std::byte*>(work.from));
    ASSERT_TRUE(work.queue->Wait().ok());
  }
  std::vector<std::byte> result = parts[0];
  for (size_t d = 1; d < parts.size(); ++d) {
    auto* const sums = reinterpret_cast<int64_t*>(result.data());
    const auto* const theirs = reinterpret_cast<const int64_t*>(parts[d].data());
    for (size_t i = 0; i < shim->work[0].count; ++i)
      sums[i] =
          shim->work[0].operation == ncclSum ? sums[i] + theirs[i] : std::max(sums[i], theirs[i]);
  }
  for (const Shim::Work& work : shim->work) {
    if (work.to == nullptr) continue;
    // Of a call that hangs, half arrives.
    const size_t bytes = shim->hangs ? result.size() / 2 : result.size();
    work.queue->CopyIn(static_cast<std::byte*>(work.to), std::span(result).first(bytes));
    ASSERT_TRUE(work.queue->Wait().ok());
  }
  shim->work.clear();
}

NcclApi ShimApi() {
  NcclApi api;
  api.version = 22809;
  api.get_unique_id = [](ncclUniqueId* id) {
    *id = {};
    return shim->Now() && shim->fault == Fault::kFails ? ncclSystemError : ncclSuccess;
  };
  api.comm_init = [](ncclComm_t* communicator, int count, ncclUniqueId, int rank,
                     ncclConfig_t* config) {
    if (shim->depth != 1 || config->blocking != 0 || rank >= count) ++shim->misuses;
    const ncclResult_t answer = Answer();
    if (answer != ncclSuccess && answer != ncclInProgress) return answer;
    auto mine = std::make_unique<Shim::Communicator>();
    mine->rank = rank;
    *communicator = reinterpret_cast<ncclComm_t>(mine.get());
    shim->communicators.push_back(std::move(mine));
    return ncclInProgress;
  };
  api.comm_finalize = [](ncclComm_t communicator) {
    Of(communicator);
    return Answer();
  };
  api.comm_destroy = [](ncclComm_t communicator) {
    Of(communicator).ended = true;
    ++shim->destroyed;
    return ncclSuccess;
  };
  api.comm_abort = [](ncclComm_t communicator) {
    Of(communicator).ended = true;
    ++shim->aborts;
    shim->hangs = shim->stuck;
    shim->work.clear();
    return ncclSuccess;
  };
  api.async_error = [](ncclComm_t communicator, ncclResult_t* state) {
    Shim::Communicator& mine = Of(communicator);
    *state = mine.dead ? ncclRemoteError : mine.late > 0 ? ncclInProgress : ncclSuccess;
    if (mine.late > 0) --mine.late;
    return ncclSuccess;
  };
  api.group_start = [] {
    ++shim->depth;
    return Answer();
  };
  api.group_end = [] {
    --shim->depth;
    shim->work.insert(shim->work.end(), shim->group.begin(), shim->group.end());
    shim->group.clear();
    return Answer();
  };
  api.reduce = [](const void* from, void* to, size_t count, ncclDataType_t type,
                  ncclRedOp_t operation, int root, ncclComm_t communicator, cudaStream_t stream) {
    const bool is_root = Of(communicator).rank == root;
    if (shim->depth != 1 || type != ncclInt64 || is_root != (to != nullptr)) ++shim->misuses;
    shim->group.push_back({from, to, count, operation, reinterpret_cast<device::Queue*>(stream)});
    return Answer();
  };
  api.error_string = [](ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited" : "a system call failed";
  };
  return api;
}

NcclSeams ShimSeams() {
  NcclSeams seams;
  seams.use_device = [](int) { return absl::OkStatus(); };
  seams.stream_of = [](device::Queue& queue) -> void* { return &queue; };
  seams.stream_done = [](void*) -> absl::StatusOr<bool> {
    if (shim->looks_left > 0) {
      --shim->looks_left;
      return false;
    }
    Compute();
    return !shim->hangs;
  };
  seams.pause = [] { shim->clock.Advance(FromSeconds(1)); };
  seams.clock = &shim->clock;
  return seams;
}

class NcclTest : public ::testing::Test {
 protected:
  static constexpr size_t kDevices = 3, kCount = 1000;

  NcclTest() {
    for (size_t d = 0; d < kDevices; ++d) {
      devices_.push_back(std::make_unique<FakeDevice>(SumHostKernels()));
      peers_.push_back({devices_[d].get(), static_cast<int>(d)});
      queues_.push_back(*devices_[d]->MakeQueue());
      parts_.push_back(*devices_[d]->Allocate(kCount * 8));
      values_.emplace_back(kCount);
      RandomStream random({.seed = d});
      for (int64_t& value : values_[d])
        value = static_cast<int64_t>(random.Below(uint64_t{1} << 60)) - (int64_t{1} << 59);
    }
    to_ = *devices_[0]->Allocate(kCount * 8);
  }

  // The host's collective behind the shim's, or alone if the shim's does not start.
  absl::StatusOr<std::unique_ptr<Collective>> Make(Shim& with) {
    shim = &with;
    absl::StatusOr<std::unique_ptr<Collective>> nccl =
        MakeNcclCollective(ShimApi(), ShimSeams(), peers_);
    if (absl::IsUnavailable(nccl.status())) return nccl.status();
    std::vector<device::Device*> all;
    for (const auto& device : devices_) all.push_back(device.get());
    std::unique_ptr<Collective> host = *MakeHostCollective(all);
    started_ = nccl.ok();
    if (!nccl.ok()) return host;
    return WithFallback(*std::move(nccl), std::move(host));
  }

  absl::Status Reduce(Collective& collective, Collective::Operation operation) {
    std::vector<const int64_t*> parts;
    for (size_t d = 0; d < kDevices; ++d) {
      queues_[d]->CopyIn(parts_[d].data(), std::as_bytes(std::span(values_[d])));
      if (!queues_[d]->Wait().ok()) return absl::InternalError("the test's copy");
      parts.push_back(parts_[d].As<int64_t>());
    }
    queues_[0]->Zero(to_.data(), to_.size());
    if (!queues_[0]->Wait().ok()) return absl::InternalError("the test's copy");
    return collective.Reduce(operation, parts, to_.As<int64_t>(), kCount);
  }

  void ExpectReduces(Collective& collective, Collective::Operation operation) {
    const absl::Status status = Reduce(collective, operation);
    ASSERT_TRUE(status.ok()) << status;
    std::vector<int64_t> out(kCount), expected = values_[0];
    queues_[0]->CopyOut(std::as_writable_bytes(std::span(out)), to_.data());
    ASSERT_TRUE(queues_[0]->Wait().ok());
    for (size_t d = 1; d < kDevices; ++d) {
      for (size_t i = 0; i < kCount; ++i) {
        expected[i] = operation == Collective::Operation::kSum
                          ? expected[i] + values_[d][i]
                          : std::max(expected[i], values_[d][i]);
      }
    }
    EXPECT_EQ(out, expected);
  }

  // A round with everything in it.
  void ExpectWorks(Collective& collective) {
    ExpectReduces(collective, Collective::Operation::kSum);
    ExpectReduces(collective, Collective::Operation::kMaximum);
    ExpectReduces(collective, Collective::Operation::kSum);
  }

  bool started_ = false;
  std::vector<std::unique_ptr<FakeDevice>> devices_;
  std::vector<NcclPeer> peers_;
  std::vector<std::unique_ptr<device::Queue>> queues_;
  std::vector<Memory> parts_;
  std::vector<std::vector<int64_t>> values_;
  Memory to_;
};

TEST_F(NcclTest, Sums) {
  Shim well;
  {
    const auto collective = Make(well);
    ASSERT_TRUE(collective.ok());
    EXPECT_TRUE(started_);
    EXPECT_EQ((*collective)->name(), "nccl 2.28.9");
    EXPECT_EQ((*collective)->devices(), kDevices);
    ExpectWorks(**collective);
    EXPECT_EQ((*collective)->name(), "nccl 2.28.9");  // not the host's
  }
  EXPECT_EQ(well.destroyed, 3);
  EXPECT_EQ(well.aborts, 0);
  EXPECT_EQ(well.misuses, 0);
}

TEST_F(NcclTest, HasTheRightSumWhateverFailsWhenever) {
  Shim well;
  {
    const auto collective = Make(well);
    ExpectWorks(**collective);
  }
  ASSERT_GT(well.calls, 20);
  for (const Fault fault : {Fault::kFails, Fault::kLate, Fault::kHangs, Fault::kDies}) {
    std::set<std::string> ways;
    for (int at = 0; at < well.calls; ++at) {
      SCOPED_TRACE(absl::StrCat(Name(fault), " at call ", at));
      Shim broken;
      broken.fault = fault;
      broken.at = at;
      {
        const auto collective = Make(broken);
        ASSERT_TRUE(collective.ok()) << collective.status();
        ExpectWorks(**collective);
        ways.insert((*collective)->name());
      }
      EXPECT_EQ(broken.depth, 0) << "a group was left open";
      EXPECT_EQ(broken.misuses, 0) << "a communicator was used after its end, or wrongly";
      // Each communicator ended once, one way or the other.
      EXPECT_EQ(broken.aborts + broken.destroyed, static_cast<int>(broken.communicators.size()));
      if (fault == Fault::kLate) {
        EXPECT_EQ(broken.aborts, 0);
      }
    }
    // Each fault was early enough to matter, except lateness, which never does.
    EXPECT_EQ(ways.contains("host"), fault != Fault::kLate);
  }
}

TEST_F(NcclTest, GivesUpAfterTheTimeThatItWasGiven) {
  Shim broken;
  broken.fault = Fault::kHangs;
  shim = &broken;
  NcclOptions options;
  options.call_seconds = 7;
  const auto nccl = MakeNcclCollective(ShimApi(), ShimSeams(), peers_, options);
  ASSERT_TRUE(nccl.ok());
  broken.at = broken.calls + 2;
  const TimePoint before = broken.clock.Now();
  const absl::Status status = Reduce(**nccl, Collective::Operation::kSum);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("7 s"));
  EXPECT_EQ(ToSeconds(broken.clock.Now() - before), 7);
  // Nothing is tried again.
  const int calls = broken.calls;
  EXPECT_TRUE(absl::IsFailedPrecondition(Reduce(**nccl, Collective::Operation::kSum)));
  EXPECT_EQ(broken.calls, calls);
}

TEST_F(NcclTest, CountsADeviceAsLostThatAnAbortedCallDoesNotLeave) {
  Shim broken;
  broken.fault = Fault::kStuck;
  broken.at = 1 << 20;
  const auto collective = Make(broken);
  ASSERT_TRUE(collective.ok());
  broken.at = broken.calls + 2;
  // The host's way would race with what is still written to the device.
  EXPECT_TRUE(absl::IsUnavailable(Reduce(**collective, Collective::Operation::kSum)));
  // Its queues are left behind, so the devices must stay.
  for (auto& device : devices_) static_cast<void>(device.release());
}

TEST(Nccl, IsLoadedOrSaysWhatIsMissing) {
  const absl::Status missing = LoadNccl("libnccl-that-is-not-there.so.2").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(missing.message(), HasSubstr("libnccl-that-is-not-there.so.2"));
  const absl::Status other = LoadNccl("libc.so.6").status();
  EXPECT_THAT(other.message(), HasSubstr("ncclGetVersion"));
  const absl::StatusOr<NcclApi> api = LoadNccl();
  if (absl::IsNotFound(api.status())) GTEST_SKIP() << api.status().message();
  ASSERT_TRUE(api.ok()) << api.status();
  EXPECT_GE(api->version, 22000);
  EXPECT_THAT(NcclVersionText(api->version), HasSubstr("2."));
}

TEST(NcclOnGpus, HasTheSumOfTheHost) {
  const auto gpus = device::ListCudaDevices();
  if (!gpus.ok()) GTEST_SKIP() << gpus.status().message();
  const absl::StatusOr<NcclApi> api = LoadNccl();
  if (!api.ok()) GTEST_SKIP() << api.status().message();
  // One rank a GPU; NCCL takes one rank, too.
  const TestCohort cohort(AllKinds(5000), 9, 1);
  std::vector<std::unique_ptr<device::Device>> devices;
  std::vector<std::unique_ptr<device::Queue>> queues;
  std::vector<Memory> vectors;
  std::vector<std::unique_ptr<DeviceSum>> sums;
  std::vector<DeviceSum*> all;
  std::vector<NcclPeer> peers;
  for (size_t d = 0; d < gpus->size(); ++d) {
    devices.push_back(*device::MakeCudaDevice(static_cast<int>(d), SumCudaKernels()));
    queues.push_back(*devices[d]->MakeQueue());
    sums.push_back(*DeviceSum::Make(*devices[d], *queues[d], cohort.channels, cohort.order, 9));
    all.push_back(sums[d].get());
    peers.push_back({devices[d].get(), static_cast<int>(d)});
  }
  ExactSum host = cohort.Empty(), whole = cohort.Empty();
  for (size_t i = 0; i < cohort.clients.size(); ++i) {
    const TestClient& client = cohort.clients[i];
    ASSERT_TRUE(client.AddTo(host).ok());
    const size_t d = i % devices.size();
    std::vector<DeviceContribution::Value> values;
    for (const FlatVector& vector : client.vectors) {
      vectors.push_back(*devices[d]->Allocate(vector.layout()->bytes()));
      queues[d]->CopyIn(vectors.back().data(), vector.view().bytes);
      values.push_back({.on_device = vectors.back().As<float>(), .on_host = vector.view()});
    }
    const DeviceContribution contribution{client.id, client.weight, client.multiplicity, values};
    ASSERT_TRUE(sums[d]->Add({&contribution, 1}).ok());
  }
  for (DeviceSum* const sum : all) ASSERT_TRUE(sum->Settle().ok());
  const auto collective = MakeNcclCollective(*api, NcclSeams::OfCuda(), peers);
  ASSERT_TRUE(collective.ok()) << collective.status();
  const absl::Status moved = DeviceSum::MoveTogether(**collective, all, whole);
  ASSERT_TRUE(moved.ok()) << moved;
  EXPECT_EQ(Bytes(whole), Bytes(host));
}

}  // namespace
}  // namespace macaw::aggregation
