#include "algorithms/robust/bucketing.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

absl::Status CheckBuckets(const Setup& setup) {
  const size_t size = BucketSize(setup);
  if (size == 1 || Buckets(setup, setup.cohort.size) > 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("bucket_size = ", size, " puts the ", setup.cohort.size,
                   " clients of a round into one bucket, whose mean is FedAvg's: use less than "
                   "cohort.size"));
}

}  // namespace

size_t BucketSize(const Setup& setup) {
  return static_cast<size_t>(setup.GetOr<int64_t>("bucket_size", 1));
}

uint64_t Buckets(const Setup& setup, uint64_t clients) {
  const uint64_t size = BucketSize(setup);
  return clients / size + (clients % size > 0 ? 1 : 0);
}

Arrived InBuckets(Arrived arrived, size_t size, RandomStream random) {
  std::vector<size_t> order(arrived.size());
  std::iota(order.begin(), order.end(), size_t{0});
  random.Shuffle(std::span(order));
  Arrived buckets;
  for (size_t begin = 0; begin < order.size(); begin += size) {
    const std::span<const size_t> bucket =
        std::span(order).subspan(begin, std::min(size, order.size() - begin));
    double total = 0;
    for (const size_t k : bucket) total += arrived.WeightOf(k);
    FlatVector mean(arrived.updates[bucket[0]].second.layout());
    for (const size_t k : bucket)
      Axpy(arrived.WeightOf(k) / total, arrived.updates[k].second.view(), mean.view());
    buckets.updates.emplace_back(ClientId(buckets.size()), std::move(mean));
    if (!arrived.weights.empty()) buckets.weights.push_back(total);
  }
  return buckets;
}

Description WithBuckets(Description rule) {
  rule.parameters.push_back({.name = "bucket_size",
                             .default_value = int64_t{1},
                             .help = "s: judges means of s clients, put together by chance in each "
                                     "round; 1: each client's update",
                             .minimum = 1,
                             .maximum = 1e6});
  rule.check = [check = std::move(rule.check)](const Setup& setup) -> absl::Status {
    MACAW_RETURN_IF_ERROR(CheckBuckets(setup));
    return check ? check(setup) : absl::OkStatus();
  };
  rule.remarks += absl::StrCat(
      rule.remarks.empty() ? "" : " ",
      "bucket_size = s is bucketing (Karimireddy, He, Jaggi, 2022, Byzantine-Robust Learning on "
      "Heterogeneous Datasets via Bucketing): the rule judges ⌈n/s⌉ means instead of n updates. It "
      "helps where clients differ. f hostile clients are in up to f of the buckets, so the rule "
      "withstands a smaller share of the clients; the paper takes s = 2.");
  return rule;
}

}  // namespace macaw::algorithms
