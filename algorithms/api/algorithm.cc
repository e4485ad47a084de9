#include "algorithms/api/algorithm.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/digest.h"

namespace macaw::algorithms {
namespace {

// For a rule that names what is not there. guard.cc makes an error of it that names the algorithm.
template <typename Items>
[[noreturn]] void ThrowUnknown(absl::string_view what, absl::string_view name, const Items& items) {
  const auto append = [](std::string* out, const auto& item) { out->append(item.name); };
  throw std::logic_error(absl::StrCat("asks for ", what, " '", name,
                                      "', which its schema does not have; it has: ",
                                      items.empty() ? "none" : absl::StrJoin(items, ", ", append)));
}

template <typename Items>
size_t IndexOf(absl::string_view what, absl::string_view name, const Items& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].name == name) return i;
  }
  ThrowUnknown(what, name, items);
}

uint64_t NumberOf(absl::string_view purpose) {
  const Digest digest = DigestOf(purpose);
  uint64_t number = 0;
  std::memcpy(&number, digest.bytes.data(), sizeof(number));
  return number;
}

RandomStream CommonStream(uint64_t seed, Round round, Phase phase, absl::string_view purpose) {
  return RandomStream({.seed = seed,
                       .purpose = Purpose::kCommonRule,
                       .round = round,
                       .phase = phase,
                       .extra = NumberOf(purpose)});
}

}  // namespace

bool BeginsAnew(const Schema& schema) {
  return !schema.state.empty() && std::ranges::all_of(schema.state, &NamedLayout::summed);
}

absl::Status ServerAlgorithm::ForgetStates() {
  return absl::InternalError(
      "its schema says that the server half sums what clients keep (NamedLayout::summed), and the "
      "half has no ForgetStates");
}

ConstVectorView ClientContext::Down(absl::string_view name) const {
  const size_t index = IndexOf("the channel down", name, schema->down);
  if (index < broadcast.size() && !broadcast[index].empty()) return broadcast[index];
  throw std::logic_error(
      absl::StrCat("asks for the channel down '", name, "' where it is not sent: in ",
                   broadcast.size() < schema->down.size()
                       ? "an evaluation, which has the model alone"
                       : absl::StrCat("phase ", phase.value, " (see its schema)")));
}

ConstVectorView ClientContext::State(absl::string_view name) const {
  return state[IndexOf("the state", name, schema->state)];
}

RandomStream ClientContext::Random(absl::string_view purpose) const {
  return RandomStream({.seed = seed,
                       .purpose = Purpose::kClientRule,
                       .round = round,
                       .phase = phase,
                       .client = client,
                       .extra = NumberOf(purpose)});
}

RandomStream ClientContext::CommonRandom(absl::string_view purpose) const {
  return CommonStream(seed, round, phase, purpose);
}

RandomStream ServerContext::Random(absl::string_view purpose) const {
  return RandomStream({.seed = seed,
                       .purpose = Purpose::kServerRule,
                       .round = round,
                       .phase = phase,
                       .extra = NumberOf(purpose)});
}

RandomStream ServerContext::CommonRandom(absl::string_view purpose) const {
  return CommonStream(seed, round, phase, purpose);
}

void ServerContext::Report(absl::string_view metric, double value) const {
  if (metrics == nullptr) return;
  const MetricSpec& spec = schema->metrics[IndexOf("the metric", metric, schema->metrics)];
  if (spec.reduction.has_value()) {
    throw std::logic_error(absl::StrCat("reports the metric '", metric,
                                        "' on the server, but its schema gives it to the clients"));
  }
  (*metrics)[std::string(metric)] = value;
}

aggregation::AggregatedChannel& ChannelOf(aggregation::Aggregate& aggregate,
                                          absl::string_view name) {
  return aggregate.channels[IndexOf("the channel up", name, aggregate.channels)];
}

}  // namespace macaw::algorithms
