#include "scheduler/feedback.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macaw::scheduler {
namespace {

constexpr uint64_t kFormat = 1;
constexpr size_t kHeadWords = 8;
constexpr size_t kClientWords = 4;

class WordWriter {
 public:
  void Put(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
  void Put(double value) { Put(std::bit_cast<uint64_t>(value)); }
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads whole words, of which there must be enough.
class WordReader {
 public:
  explicit WordReader(absl::string_view bytes) : bytes_(bytes) {}
  size_t left() const { return bytes_.size() / 8; }
  uint64_t Number() {
    uint64_t value = 0;
    for (size_t i = 0; i < 8; ++i) value |= uint64_t{static_cast<uint8_t>(bytes_[i])} << (8 * i);
    bytes_.remove_prefix(8);
    return value;
  }
  double Real() { return std::bit_cast<double>(Number()); }

 private:
  absl::string_view bytes_;
};

uint64_t Pair(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }
uint32_t Low(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t High(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

// The loss that counts.
constexpr double kMostLoss = 1e30;      // sums over clients and rows stay finite
constexpr double kMostOfLosses = 1e40;  // over the rounds of a run
std::optional<double> LossOf(const ClientFact& fact) {
  if (!fact.loss.has_value() || !(std::abs(*fact.loss) <= kMostLoss)) return std::nullopt;
  return fact.loss;
}

bool IsShare(double x) { return x >= 0 && x <= 1; }
bool IsAmount(double x) { return x >= 0 && std::isfinite(x); }

absl::Status NotWritten(absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat("what the checkpoint knows of the clients that were drawn is damaged: ", why));
}

}  // namespace

Feedback::Feedback(const CohortConfig& config)
    : oort_(config.oort),
      discount_(config.discount),
      discounted_(config.sampling == "ucb"),
      exploration_(std::max(oort_.exploration * oort_.exploration_decay, oort_.exploration_min)),
      threshold_(oort_.round_threshold) {}

const KnownClient* Feedback::Find(ClientId client) const {
  const auto found = std::ranges::lower_bound(clients_, client.value, {}, &KnownClient::client);
  return found != clients_.end() && found->client == client.value ? &*found : nullptr;
}

void Feedback::Meet(std::span<const ClientFact> facts) {
  const size_t known = clients_.size();
  for (const ClientFact& fact : facts) {
    const auto end = clients_.begin() + static_cast<ptrdiff_t>(known);
    const auto found = std::ranges::lower_bound(clients_.begin(), end, fact.client.value, {},
                                                &KnownClient::client);
    if (found != end && found->client == fact.client.value) continue;
    clients_.push_back({.client = static_cast<uint32_t>(fact.client.value),
                        .loss = discounted_ ? 0 : KnownClient::kNoLoss});
  }
  std::ranges::inplace_merge(clients_, clients_.begin() + static_cast<ptrdiff_t>(known), {},
                             &KnownClient::client);
}

void Feedback::Observe(Round round, std::span<const ClientFact> facts) {
  round_ = round;
  ObserveUtilities(facts);
  Meet(facts);
  if (discounted_) ObserveDiscounted(facts);
  auto place = clients_.begin();
  for (const ClientFact& fact : facts) {
    place = std::ranges::lower_bound(place, clients_.end(), fact.client.value, {},
                                     &KnownClient::client);
    KnownClient& client = *place;
    client.asked = round.value;
    if (fact.seconds.has_value()) client.seconds = static_cast<float>(*fact.seconds);
    if (!fact.left_out) ++client.turns;
    if (discounted_) {
      client.weight += 1;
      client.loss += LossOf(fact).value_or(0);
    } else if (const std::optional<double> loss = LossOf(fact); loss.has_value()) {
      client.loss = *loss;
    }
  }
}

// The pacer of oort.py: utilities are means over the clients of a round that were chosen for
// theirs, and sums over rounds.
void Feedback::ObserveUtilities(std::span<const ClientFact> facts) {
  double sum = 0, count = 0;
  for (const ClientFact& fact : facts) {
    const std::optional<double> loss = LossOf(fact);
    if (!loss.has_value() || Find(fact.client) == nullptr) continue;
    sum += fact.rows * *loss;
    ++count;
  }
  utilities_.push_back(count > 0 ? sum / count : 0);
  const size_t most = 2 * size_t{oort_.pacer_step};
  if (utilities_.size() > most) utilities_.erase(utilities_.begin());
  if (utilities_.size() == most && round_.value % oort_.pacer_step == 0) MoveThreshold();
  exploration_ = std::max(exploration_ * oort_.exploration_decay, oort_.exploration_min);
}

void Feedback::MoveThreshold() {
  double before = 0, now = 0;
  for (size_t i = 0; i < utilities_.size(); ++i)
    (i < oort_.pacer_step ? before : now) += utilities_[i];
  const double change = std::abs(now - before);
  if (change <= 0.1 * before) {
    threshold_ = std::min(1.0, threshold_ + oort_.pacer_delta);
  } else if (change >= 5 * before) {
    threshold_ = std::max(oort_.pacer_delta, threshold_ - oort_.pacer_delta);
  }
}

// L, N and T of Cho, Gupta, Joshi and Yağan 2020.
void Feedback::ObserveDiscounted(std::span<const ClientFact> facts) {
  for (KnownClient& client : clients_) {
    client.loss *= discount_;
    client.weight *= discount_;
  }
  total_ = discount_ * total_ + 1;
  double mean = 0, square = 0, count = 0;
  for (const ClientFact& fact : facts) {
    const std::optional<double> loss = LossOf(fact);
    if (!loss.has_value()) continue;
    mean += *loss;
    ++count;
  }
  if (count < 2) return;
  mean /= count;
  for (const ClientFact& fact : facts) {
    if (const std::optional<double> loss = LossOf(fact); loss.has_value())
      square += (*loss - mean) * (*loss - mean);
  }
  deviation_ = std::sqrt(square / count);
}

// Words of eight bytes, the lowest first:
//   format · round · exploration · threshold · total · deviation · utilities · clients
//   the utilities · of each client: client, asked · turns, seconds · loss · weight
std::string Feedback::Save() const {
  WordWriter out;
  out.Put(kFormat);
  out.Put(uint64_t{round_.value});
  for (const double value : {exploration_, threshold_, total_, deviation_}) out.Put(value);
  out.Put(uint64_t{utilities_.size()});
  out.Put(uint64_t{clients_.size()});
  for (const double utility : utilities_) out.Put(utility);
  for (const KnownClient& client : clients_) {
    out.Put(Pair(client.client, client.asked));
    out.Put(Pair(client.turns, std::bit_cast<uint32_t>(client.seconds)));
    out.Put(client.loss);
    out.Put(client.weight);
  }
  return std::move(out).Take();
}

absl::Status Feedback::Load(absl::string_view bytes, uint64_t clients) {
  WordReader in(bytes);
  if (bytes.size() % 8 != 0 || in.left() < kHeadWords) return NotWritten("it is cut off");
  if (in.Number() != kFormat) return NotWritten("it has another format");
  const uint64_t round = in.Number();
  const double exploration = in.Real(), threshold = in.Real();
  const double total = in.Real(), deviation = in.Real();
  const uint64_t utilities = in.Number(), known = in.Number();
  if (round >= std::numeric_limits<uint32_t>::max() || deviation > kMostOfLosses ||
      !IsShare(exploration) || !IsShare(threshold) || !IsAmount(total) || !IsAmount(deviation)) {
    return NotWritten("a number is out of its range");
  }
  if (utilities > std::min<uint64_t>(round, 2 * uint64_t{oort_.pacer_step}) || known > clients ||
      in.left() != utilities + kClientWords * known) {
    return NotWritten("its length does not fit");
  }
  std::vector<double> kept(utilities);
  for (double& utility : kept) {
    utility = in.Real();
    if (!std::isfinite(utility)) return NotWritten("a utility is not finite");
  }
  std::vector<KnownClient> found(known);
  for (size_t i = 0; i < found.size(); ++i) {
    KnownClient& client = found[i];
    const uint64_t first = in.Number(), second = in.Number();
    client = {.client = Low(first),
              .asked = High(first),
              .turns = Low(second),
              .seconds = std::bit_cast<float>(High(second)),
              .loss = in.Real()};
    client.weight = in.Real();
    const bool ordered = i == 0 || found[i - 1].client < client.client;
    const bool loss = std::abs(client.loss) <= kMostOfLosses || (!discounted_ && !client.told());
    if (!ordered || client.client >= clients || client.asked == 0 || client.asked > round ||
        client.turns > client.asked || !IsAmount(client.seconds) || !IsAmount(client.weight) ||
        !loss) {
      return NotWritten(absl::StrCat("its entry number ", i + 1));
    }
  }
  round_ = Round(static_cast<uint32_t>(round));
  exploration_ = exploration;
  threshold_ = threshold;
  total_ = total;
  deviation_ = deviation;
  utilities_ = std::move(kept);
  clients_ = std::move(found);
  return absl::OkStatus();
}

}  // namespace macaw::scheduler
