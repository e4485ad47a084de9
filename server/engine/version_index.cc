#include "server/engine/version_index.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace macaw::server {
namespace {

// A fence in 8 bytes: 2^24 starts of the server, 2^40 attempts in each.
constexpr int kCounterBits = 40;
constexpr uint64_t kCounterMask = (uint64_t{1} << kCounterBits) - 1;

uint64_t Pack(const Fence& fence) {
  assert(fence.counter <= kCounterMask && fence.epoch < (uint32_t{1} << (64 - kCounterBits)));
  return (uint64_t{fence.epoch} << kCounterBits) | fence.counter;
}
Fence Unpack(uint64_t packed) {
  return {static_cast<uint32_t>(packed >> kCounterBits), packed & kCounterMask};
}

}  // namespace

Fence VersionIndex::Get(ClientId client) const {
  const uint64_t page = client.value / fleet::kStateRange;
  if (page >= pages_.size() || pages_[page].empty()) return {};
  return Unpack(pages_[page][client.value % fleet::kStateRange]);
}

void VersionIndex::Set(ClientId client, const Fence& fence) {
  const uint64_t page = client.value / fleet::kStateRange;
  if (page >= pages_.size()) pages_.resize(page + 1);
  if (pages_[page].empty()) pages_[page].resize(fleet::kStateRange);
  uint64_t& place = pages_[page][client.value % fleet::kStateRange];
  size_ += place == 0 ? 1 : 0;
  place = Pack(fence);
}

void VersionIndex::Clear(ClientId client) {
  if (Get(client).counter == 0) return;
  pages_[client.value / fleet::kStateRange][client.value % fleet::kStateRange] = 0;
  --size_;
}

std::vector<Attempt> VersionIndex::Page(uint64_t page) const {
  std::vector<Attempt> versions;
  for (uint64_t i = 0; i < pages_[page].size(); ++i) {
    const uint64_t packed = pages_[page][i];
    if (packed != 0) versions.push_back({ClientId(page * fleet::kStateRange + i), Unpack(packed)});
  }
  return versions;
}

std::vector<uint64_t> VersionIndex::Encode() const {
  std::vector<uint64_t> numbers;
  numbers.reserve(2 * size_);
  for (uint64_t page = 0; page < pages_.size(); ++page) {
    for (uint64_t i = 0; i < pages_[page].size(); ++i) {
      if (pages_[page][i] == 0) continue;
      numbers.push_back(page * fleet::kStateRange + i);
      numbers.push_back(pages_[page][i]);
    }
  }
  return numbers;
}

absl::StatusOr<VersionIndex> VersionIndex::Decode(std::span<const uint64_t> numbers,
                                                  uint64_t clients) {
  VersionIndex index;
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) {
    const bool ascends = i == 0 || numbers[i - 2] < numbers[i];
    if (numbers[i] >= clients || !ascends || Unpack(numbers[i + 1]).counter == 0) {
      return absl::DataLossError(absl::StrCat("its client state versions name client ", numbers[i],
                                              " of ", clients,
                                              " in a way that no checkpoint does"));
    }
    index.Set(ClientId(numbers[i]), Unpack(numbers[i + 1]));
  }
  if (numbers.size() % 2 != 0) return absl::DataLossError("its client state versions are cut off");
  return index;
}

StateVersions::StateVersions(VersionIndex index, uint64_t most_replaced)
    : index_(std::move(index)), most_replaced_(most_replaced) {
  for (uint64_t page = 0; page < index_.pages(); ++page) {
    for (const Attempt& version : index_.Page(page)) newest_ = std::max(newest_, version.fence);
  }
  snapshot_ = newest_;
}

size_t StateVersions::ForgetStaged(std::span<const ClientId> clients, size_t first) {
  const absl::flat_hash_set<ClientId> theirs(clients.begin(), clients.end());
  size_t among = 0;
  for (size_t i = 0; i < std::min(first, staged_.size()); ++i)
    among += theirs.contains(staged_[i].client) ? 1 : 0;
  std::erase_if(staged_, [&](const Attempt& one) { return theirs.contains(one.client); });
  return among;
}

void StateVersions::ForgetCurrent(std::span<const ClientId> clients) {
  for (const ClientId client : clients) index_.Clear(client);
}

void StateVersions::Close(Round round) {
  for (const Attempt& version : staged_) {
    const Fence before = index_.Get(version.client);
    index_.Set(version.client, version.fence);
    newest_ = std::max(newest_, version.fence);
    if (before.counter > 0) Retire(round, {version.client, before});
  }
  staged_.clear();
}

void StateVersions::CloseAndForgetAll(Round round) {
  Close(round);
  for (uint64_t page = 0; page < index_.pages(); ++page) {
    for (const Attempt& version : index_.Page(page)) Retire(round, version);
  }
  index_ = {};
}

void StateVersions::Retire(Round round, const Attempt& version) {
  if (replaced_.size() + deletable_.size() >= most_replaced_) return;
  if (version.fence > snapshot_) {
    deletable_.push_back(version);
  } else {
    replaced_.push_back({round, version});
  }
}

VersionIndex StateVersions::Snapshot(Staged staged) {
  VersionIndex snapshot = index_;
  snapshot_ = newest_;
  for (const Attempt& version : staged_) {
    if (staged == Staged::kLeftOut) break;
    snapshot.Set(version.client, version.fence);
    snapshot_ = std::max(snapshot_, version.fence);
  }
  return snapshot;
}

void StateVersions::CheckpointsFrom(Round oldest) {
  while (!replaced_.empty() && replaced_.front().round <= oldest) {
    deletable_.push_back(replaced_.front().version);
    replaced_.pop_front();
  }
}

std::vector<Attempt> StateVersions::TakeDeletable(size_t most) {
  // Taken from the end, which costs the same for a million of them.
  const auto first =
      deletable_.end() - static_cast<long>(std::min<size_t>(most, deletable_.size()));
  std::vector<Attempt> taken(first, deletable_.end());
  deletable_.erase(first, deletable_.end());
  return taken;
}

}  // namespace macaw::server
