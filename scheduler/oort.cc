#include "scheduler/oort.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "core/random.h"
#include "scheduler/untried.h"
#include "scheduler/weighted_draw.h"

namespace macaw::scheduler {
namespace {

constexpr uint64_t kExploit = 1, kUntried = 2, kBySpeed = 3;  // StreamKey::extra

// Element ⌊n · share⌋ of the sorted values, the last one at most. At least one value.
double QuantileOf(std::vector<double>& values, double share) {
  const auto place =
      std::min(static_cast<size_t>(static_cast<double>(values.size()) * share), values.size() - 1);
  const auto found = values.begin() + static_cast<ptrdiff_t>(place);
  std::ranges::nth_element(values, found);
  return *found;
}

class OortSampler final : public CohortSampler {
 public:
  OortSampler(const CohortConfig& config, uint64_t size, Trainable clients,
              const Feedback& feedback)
      : config_(config.oort),
        seed_(config.seed),
        size_(size),
        clients_(std::move(clients)),
        feedback_(feedback) {}

  Cohort Sample(const Moment& moment) const override {
    const std::vector<const KnownClient*> known = KnownAmong(feedback_, clients_);
    const std::vector<const KnownClient*> drawable = WithoutBlacklist(known);
    const uint64_t untried = clients_.size() - known.size();
    const double exploited =
        std::floor(static_cast<double>(size_) * (1 - feedback_.exploration()) + 1e-9);
    uint64_t exploit = std::min<uint64_t>(static_cast<uint64_t>(exploited), drawable.size());
    const uint64_t explore = std::min(untried, size_ - exploit);
    exploit = std::min<uint64_t>(size_ - explore, drawable.size());

    Cohort cohort{.round = moment.round, .entries = Explore(moment, known.size(), explore)};
    const std::vector<CohortEntry> chosen =
        Exploit(moment.round, drawable, SlowestPreferred(known), exploit);
    cohort.entries.insert(cohort.entries.end(), chosen.begin(), chosen.end());
    std::ranges::sort(cohort.entries, {}, &CohortEntry::client);
    return cohort;
  }

 private:
  RandomStream StreamOf(Round round, uint64_t what) const {
    return RandomStream(
        {.seed = seed_, .purpose = Purpose::kCohort, .round = round, .extra = what});
  }

  // The clients that have counted most often are left out, those with the smaller ids first.
  std::vector<const KnownClient*> WithoutBlacklist(std::vector<const KnownClient*> known) const {
    if (config_.blacklist_rounds == 0) return known;
    std::vector<const KnownClient*> often;
    for (const KnownClient* client : known) {
      if (client->turns > config_.blacklist_rounds) often.push_back(client);
    }
    const auto share =
        static_cast<uint64_t>(config_.blacklist_share * static_cast<double>(clients_.size()));
    const uint64_t most = std::min(share, clients_.size() - size_);
    std::ranges::sort(often, [](const KnownClient* a, const KnownClient* b) {
      return a->turns != b->turns ? a->turns > b->turns : a->client < b->client;
    });
    often.resize(std::min<uint64_t>(often.size(), most));
    std::ranges::sort(often, {}, &KnownClient::client);
    std::erase_if(known, [&](const KnownClient* client) {
      return std::ranges::binary_search(often, client->client, {}, &KnownClient::client);
    });
    return known;
  }

  // T, in seconds.
  double SlowestPreferred(const std::vector<const KnownClient*>& known) const {
    std::vector<double> seconds;
    for (const KnownClient* client : known) {
      if (client->seconds > 0) seconds.push_back(client->seconds);
    }
    if (seconds.empty() || feedback_.threshold() >= 1)
      return std::numeric_limits<double>::infinity();
    return QuantileOf(seconds, feedback_.threshold());
  }

  // U_i; 0 where no loss is known.
  double UtilityOf(const KnownClient& client) const {
    if (!client.told()) return 0;
    return clients_.RowsOf(ClientId(client.client)) * client.loss;
  }

  double PenaltyOf(double seconds, double preferred) const {
    return seconds > preferred ? std::pow(preferred / seconds, config_.penalty) : 1;
  }

  std::vector<double> Scores(Round round, const std::vector<const KnownClient*>& clients,
                             double preferred) const {
    std::vector<double> utilities;
    for (const KnownClient* client : clients) {
      if (const double utility = UtilityOf(*client); utility > 0) utilities.push_back(utility);
    }
    double least = 0, range = 1, clip = 0;
    if (!utilities.empty()) {
      const auto [smallest, largest] = std::ranges::minmax(utilities);
      least = 0.999 * smallest;
      range = std::max(largest - least, 1e-4);
      clip = QuantileOf(utilities, config_.clip);
    }
    const double uncertainty = 0.1 * std::log(static_cast<double>(round.value));
    std::vector<double> scores;
    scores.reserve(clients.size());
    for (const KnownClient* client : clients) {
      const double utility = std::max(0.0, (std::min(UtilityOf(*client), clip) - least) / range);
      const double score = utility + std::sqrt(uncertainty / client->asked);
      scores.push_back(score * PenaltyOf(client->seconds, preferred));
    }
    return scores;
  }

  std::vector<CohortEntry> Exploit(Round round, const std::vector<const KnownClient*>& clients,
                                   double preferred, uint64_t count) const {
    if (count == 0) return {};
    const std::vector<double> scores = Scores(round, clients, preferred);
    std::vector<double> sorted = scores;
    std::ranges::nth_element(sorted, sorted.begin() + static_cast<ptrdiff_t>(count - 1),
                             std::greater<>());
    const double least = config_.cut_off * sorted[count - 1];
    std::vector<ClientId> candidates;
    std::vector<double> weights;
    for (size_t i = 0; i < clients.size(); ++i) {
      if (scores[i] < least) continue;
      candidates.emplace_back(clients[i]->client);
      weights.push_back(scores[i]);
    }
    RandomStream stream = StreamOf(round, kExploit);
    std::vector<CohortEntry> entries;
    for (const uint64_t place : DrawWeighted(stream, weights, count)) {
      entries.push_back({.client = candidates[place], .load = clients_.RowsOf(candidates[place])});
    }
    return entries;
  }

  std::vector<CohortEntry> Explore(const Moment& moment, uint64_t known, uint64_t count) const {
    if (count == 0) return {};
    uint64_t wanted = count;
    if (moment.seconds_of) {
      const double window = std::ceil(config_.sample_window * static_cast<double>(count));
      wanted =
          static_cast<uint64_t>(std::min(window, static_cast<double>(clients_.size() - known)));
    }
    RandomStream untried = StreamOf(moment.round, kUntried);
    std::vector<CohortEntry> entries =
        clients_.Entries(DrawUntried(untried, feedback_, clients_, known, wanted));
    if (!moment.seconds_of) return entries;
    std::vector<double> speeds;
    for (const CohortEntry& entry : entries)
      speeds.push_back(1 / std::max(moment.seconds_of(entry), 1e-9));
    RandomStream stream = StreamOf(moment.round, kBySpeed);
    std::vector<CohortEntry> chosen;
    for (const uint64_t place : DrawWeighted(stream, speeds, count))
      chosen.push_back(entries[place]);
    return chosen;
  }

  const OortConfig config_;
  const uint64_t seed_;
  const uint64_t size_;
  const Trainable clients_;
  const Feedback& feedback_;
};

}  // namespace

std::unique_ptr<CohortSampler> MakeOortSampler(const CohortConfig& config, uint64_t size,
                                               Trainable clients, const Feedback& feedback) {
  return std::make_unique<OortSampler>(config, size, std::move(clients), feedback);
}

}  // namespace macaw::scheduler
