#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/attack.h"
#include "algorithms/around/channels.h"
#include "server/leave_one_out.h"
#include "server/model_keeper.h"
#include "tests/server/tiny_run.h"

// The angles and weights of contributions.jsonl under attacks that are made of honest updates: the
// sums have zeros of hostile clients, and the server half puts in what these would have sent. Here
// all of it is computed again, client by client and in float64.
namespace macaw::server {
namespace {

constexpr uint64_t kRoundClients = 7;
using Row = std::vector<double>;
using Rows = std::vector<Row>;

double RowsOfClient(uint64_t client) { return static_cast<double>(client + 2); }

// On the channel with that number, if the client is honest.
Row HonestRow(uint64_t client, size_t channel) {
  Row row;
  for (uint64_t i = 0; i < 4; ++i) {
    const auto angle = static_cast<double>((client + 1) * (i + 2) * (2 * channel + 1));
    row.push_back(static_cast<float>(std::sin(angle) + 0.3));
  }
  return row;
}

// By element of the tiny layout, without gaps.
template <typename F>
void ForEachPlace(const ParameterLayout& layout, F&& f) {
  size_t n = 0;
  for (const LayoutEntry& entry : layout.entries()) {
    for (uint64_t i = 0; i < entry.size; ++i) f(entry.offset + i, n++);
  }
}

struct AttackedChannel {
  bool mean_weighs = false;  // a client's row in the mean
  bool lie_weighs = false;   // an honest row in what hostile clients send
};

struct AttackedCase {
  std::string rule;
  std::map<std::string, ParameterValue> parameters = {};
  std::vector<AttackedChannel> channels;  // of the model's layout
  bool weights_of_rows = false;           // in the rule's sum
  // A hostile client reports the mean of the honest weights.
  bool reports = false;
};

class LeftOutUnderAttack : public testing::Test {
 protected:
  // The run's round, with what honest clients send of HonestRow and zeros of the others.
  static std::vector<WithoutClient> Round(const AttackedCase& of, const AttackConfig& attack) {
    RunPlan run = fixtures::TinyRun(2);
    run.algorithm = *fixtures::Registry().Complete({of.rule, of.parameters});
    run.contribution_bound = 64;
    run.cohort.size = kRoundClients;
    run.evaluation.leave_one_out = 1;
    run.attack = attack;
    const absl::StatusOr<algorithms::Description> rule = fixtures::Registry().RuleOf(run);
    EXPECT_TRUE(rule.ok()) << rule.status();
    const algorithms::Setup setup = algorithms::SetupOf(run, fixtures::TinyLayout());
    ModelKeeper keeper =
        *ModelKeeper::Make(*rule, setup, fixtures::TinyModel(), {.leave_one_out = 1});
    const PhaseOrder order = {.round = macaw::Round(1),
                              .grid = {.max_weight = 16,
                                       .total_weight = 64,
                                       .max_multiplicity = 1,
                                       .total_multiplicity = kRoundClients}};
    EXPECT_TRUE(keeper.Open(order).ok());
    const auto channels = algorithms::UpChannels(*algorithms::SchemaOf(*rule, setup), Phase(0));
    const HostileClients hostile = Hostile(attack);
    for (uint64_t client = 0; client < kRoundClients; ++client) {
      auto sum = *aggregation::ExactSum::Make(channels, order.grid);
      std::vector<FlatVector> vectors;
      for (const aggregation::ChannelSpec& channel : channels)
        vectors.push_back(SentOn(channel, client, hostile.Contains(ClientId(client)), channels));
      std::vector<ConstVectorView> values;
      for (const FlatVector& vector : vectors) values.push_back(vector.view());
      const absl::Status added =
          sum.Add({.client = ClientId(client), .weight = RowsOfClient(client), .values = values});
      EXPECT_TRUE(added.ok()) << added;
      EXPECT_TRUE(keeper.Add(std::move(sum), ClientId(client)).ok());
    }
    const absl::StatusOr<bool> applied = keeper.Apply(macaw::Round(1), Phase(0));
    EXPECT_TRUE(applied.ok()) << applied.status();
    EXPECT_EQ(keeper.without().size(), kRoundClients);
    return keeper.without();
  }

  static HostileClients Hostile(const AttackConfig& attack) {
    const RunPlan run = fixtures::TinyRun(2);
    return HostileClients(attack, run.clients, run.seed);
  }

  static FlatVector SentOn(const aggregation::ChannelSpec& channel, uint64_t client, bool hostile,
                           const std::vector<aggregation::ChannelSpec>& channels) {
    FlatVector vector(channel.layout);
    const bool metric = !algorithms::SameLayout(channel.layout.get(), fixtures::TinyLayout().get());
    if (hostile) return vector;
    if (channel.name == "weight") {
      vector.As<double>()[0] = RowsOfClient(client);
      return vector;
    }
    const bool squares = absl::StartsWith(channel.name, "attack_squares_");
    if (metric && !squares) {
      if (absl::StartsWith(channel.name, "attack_honest")) vector.As<double>()[0] = 1;
      return vector;
    }
    size_t number = 0;  // of the rule's channel whose update it is
    while (!absl::EndsWith(channel.name, channels[number].name)) ++number;
    const Row row = HonestRow(client, number);
    ForEachPlace(*channel.layout, [&](uint64_t i, size_t n) {
      if (squares) {
        vector.As<double>()[i] = row[n] * row[n];
      } else {
        vector.As<float>()[i] = static_cast<float>(row[n]);
      }
    });
    return vector;
  }

  // What hostile clients send, from the honest rows and their weights.
  static Row LieByHand(const AttackConfig& attack, const Rows& honest, const Row& weights) {
    if (attack.kind == "mimic") return honest.front();
    Row mean(4), variance(4);
    double total = 0;
    for (const double weight : weights) total += weight;
    for (size_t i = 0; i < 4; ++i) {
      for (size_t k = 0; k < honest.size(); ++k) mean[i] += weights[k] / total * honest[k][i];
      for (size_t k = 0; k < honest.size(); ++k)
        variance[i] += weights[k] / total * std::pow(honest[k][i] - mean[i], 2);
    }
    const auto along = [&](double step, const Row& direction) {
      Row row = mean;
      for (size_t i = 0; i < 4; ++i) row[i] += step * direction[i];
      return row;
    };
    if (attack.kind == "inner-product") return along(-*attack.scale - 1, mean);
    if (attack.kind == "alie") {
      Row deviation;
      for (const double v : variance) deviation.push_back(std::sqrt(v));
      return along(-*attack.z, deviation);
    }
    // min-max and min-sum along −μ/‖μ‖: steps that are ever finer, while the limit holds.
    const auto squared = [](const Row& a, const Row& b) {
      double sum = 0;
      for (size_t i = 0; i < 4; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
      return sum;
    };
    const auto reach = [&](const Row& from) {
      double largest = 0, sum = 0;
      for (const Row& row : honest) {
        largest = std::max(largest, squared(from, row));
        sum += squared(from, row);
      }
      return attack.kind == "min-max" ? largest : sum;
    };
    double limit = 0;
    for (const Row& row : honest) limit = std::max(limit, reach(row));
    Row back = mean;
    const double length = std::sqrt(squared(mean, Row(4)));
    for (double& value : back) value = -value / length;
    double gamma = 0;
    for (double step = 4; step > 1e-12; step /= 2) {
      while (reach(along(gamma + step, back)) <= limit) gamma += step;
    }
    return along(gamma, back);
  }

  static void ExpectByHand(const AttackedCase& of, const AttackConfig& attack) {
    SCOPED_TRACE(of.rule + " under " + attack.kind);
    const HostileClients hostile = Hostile(attack);
    std::vector<uint64_t> honest;
    double honest_rows = 0;
    for (uint64_t k = 0; k < kRoundClients; ++k) {
      if (hostile.Contains(ClientId(k))) continue;
      honest.push_back(k);
      honest_rows += RowsOfClient(k);
    }
    ASSERT_GE(honest.size(), 3u);
    ASSERT_LE(honest.size() + 2, kRoundClients);
    const auto weight_of = [&](uint64_t k, bool weighs) {
      if (!weighs) return 1.0;
      return of.reports && hostile.Contains(ClientId(k))
                 ? honest_rows / static_cast<double>(honest.size())
                 : RowsOfClient(k);
    };
    std::vector<Rows> sent(kRoundClients);  // by client and channel
    Rows means;
    for (size_t c = 0; c < of.channels.size(); ++c) {
      Rows rows;
      Row weights;
      for (const uint64_t k : honest) {
        rows.push_back(HonestRow(k, c));
        weights.push_back(of.channels[c].lie_weighs ? RowsOfClient(k) : 1);
      }
      const Row lie = LieByHand(attack, rows, weights);
      Row mean(4);
      double total = 0;
      for (uint64_t k = 0; k < kRoundClients; ++k) {
        sent[k].push_back(hostile.Contains(ClientId(k)) ? lie : HonestRow(k, c));
        const double weight = weight_of(k, of.channels[c].mean_weighs);
        total += weight;
        for (size_t i = 0; i < 4; ++i) mean[i] += weight * sent[k][c][i];
      }
      for (double& value : mean) value /= total;
      means.push_back(mean);
    }
    const std::vector<WithoutClient> got = Round(of, attack);
    for (const WithoutClient& one : got) {
      const uint64_t k = one.client.value;
      double own = 0, all = 0, both = 0;
      for (size_t c = 0; c < means.size(); ++c) {
        for (size_t i = 0; i < 4; ++i) {
          own += sent[k][c][i] * sent[k][c][i];
          all += means[c][i] * means[c][i];
          both += sent[k][c][i] * means[c][i];
        }
      }
      EXPECT_NEAR(one.cosine, both / std::sqrt(own * all), 1e-5) << "client " << k;
      EXPECT_NEAR(one.weight, weight_of(k, of.weights_of_rows), 1e-9) << "client " << k;
    }
  }
};

TEST_F(LeftOutUnderAttack, IsOfWhatHostileClientsSendAndOfTheMeanThatMovesTheModel) {
  const std::vector<AttackConfig> attacks = {
      {.kind = "inner-product", .fraction = 0.375, .scale = 10},
      {.kind = "alie", .fraction = 0.375, .z = 3},
      {.kind = "min-max", .fraction = 0.375, .perturbation = "unit"},
      {.kind = "min-sum", .fraction = 0.375, .perturbation = "unit"},
      {.kind = "mimic", .fraction = 0.375}};
  const std::vector<AttackedCase> cases = {
      {"fedavg", {}, {{true, true}}, true},
      {"feddyn", {}, {{false, false}}, false},
      {"scaffold", {{"weighted", false}}, {{false, false}, {false, false}}, false},
      {"median", {}, {{false, false}}, false},
      {"geometric_median", {{"weighted", true}}, {{true, false}}, true, /*reports=*/true}};
  for (const AttackConfig& attack : attacks) {
    for (AttackedCase of : cases) {
      // These two take plain means of honest rows, and mimic is one of them.
      if (attack.takes_rows()) {
        for (AttackedChannel& channel : of.channels) channel.lie_weighs = false;
        if (attack.kind == "mimic" && of.reports) continue;  // its weight is that of whom it copies
      }
      ExpectByHand(of, attack);
    }
  }
}

// A round without honest clients: zeros are sent.
TEST_F(LeftOutUnderAttack, HasNoAngleWhereNobodyIsHonest) {
  const AttackConfig attack{.kind = "inner-product", .fraction = 1, .scale = 10};
  for (const char* rule : {"fedavg", "median"}) {
    for (const WithoutClient& one : Round({.rule = rule, .channels = {}}, attack))
      EXPECT_TRUE(std::isnan(one.cosine)) << rule;
  }
}

}  // namespace
}  // namespace macaw::server
