// What the interface promises to whoever writes a rule: vectors by name, streams of random numbers,
// metrics, channels by phase.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/builtin.h"
#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using aggregation::Reduction;
using testing::HasSubstr;
using testing::Not;

using Conclusion = std::function<void(const ClientContext&, ClientResult&)>;

// FedAvg whose results are changed before they leave the client.
class Changed final : public DeltaClient {
 public:
  Changed(const Setup& setup, Conclusion change) : DeltaClient(setup), change_(std::move(change)) {}
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DeltaClient::Conclude(context, outcomes, workspace));
    change_(context, result);
    return result;
  }

 private:
  const Conclusion change_;
};

Description Rule(
    Conclusion change, std::function<void(Schema&)> schema = [](Schema&) {}) {
  Description rule = Builtin("fedavg");
  rule.name = "changed";
  rule.schema = [schema](const Setup& setup) -> absl::StatusOr<Schema> {
    Schema made = MeanDeltaSchema(setup);
    schema(made);
    return made;
  };
  rule.client = [change](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    return std::make_unique<Changed>(setup, change);
  };
  return rule;
}

absl::Status OneRound(const Description& rule) { return RoundLoop(rule, Q4(), {}).Rounds(1); }

// An Internal error that names the algorithm and what was wrong.
void ExpectMisuse(const absl::Status& status, const std::string& name) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("algorithm changed"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(name));
}

TEST(Names, AVectorThatTheSchemaDoesNotHaveIsAProgrammingErrorWithItsName) {
  const auto asks = [](auto look_up) {
    return OneRound(
        Rule([look_up](const ClientContext& context, ClientResult&) { look_up(context); }));
  };
  ExpectMisuse(asks([](const ClientContext& c) { c.Down("control"); }), "'control'");
  ExpectMisuse(asks([](const ClientContext& c) { c.State("h"); }), "'h'");
  EXPECT_TRUE(asks([](const ClientContext& c) { c.Down("model"); }).ok());
}

TEST(Names, AResultThatDoesNotFitTheSchemaIsAProgrammingErrorThatSaysWhatWasExpected) {
  const auto gives = [](const Conclusion& change) { return OneRound(Rule(change)); };
  ExpectMisuse(gives([](const auto&, ClientResult& r) { r.up.clear(); }), "'delta'");
  ExpectMisuse(gives([](const auto&, ClientResult& r) { r.up[0].name = "detla"; }), "'detla'");
  ExpectMisuse(gives([](const auto&, ClientResult& r) { r.up.push_back(r.up[0]); }), "twice");
  ExpectMisuse(gives([](const auto& c, ClientResult& r) {
                 r.up.push_back({"h", c.model()});
               }),
               "'h'");
  ExpectMisuse(gives([](const auto& c, ClientResult& r) { r.state = {{"h", c.model()}}; }), "'h'");
  ExpectMisuse(gives([](const auto&, ClientResult& r) { r.up[0].value = ConstVectorView(); }),
               "empty");
  const FlatVector other(Plain(3, DType::kF64));
  ExpectMisuse(gives([&](const auto&, ClientResult& r) { r.up[0].value = other.view(); }),
               "layout");
  ExpectMisuse(gives([&](const auto& c, ClientResult& r) {
                 r.up[0].value = Displacement(c.model(), other.view());
               }),
               "layout");
}

TEST(Names, ASchemaThatCannotBeIsRefusedWithTheNameOfWhatIsWrong) {
  const auto with = [](std::function<void(Schema&)> change) {
    const Description rule = Rule([](const auto&, auto&) {}, std::move(change));
    algorithms::Setup setup;
    setup.layout = Plain(2, DType::kF64);
    return SchemaOf(rule, setup).status();
  };
  ExpectMisuse(with([](Schema& s) { s.up.push_back(s.up[0]); }), "'delta'");
  ExpectMisuse(with([](Schema& s) { s.down.push_back({"c", nullptr}); }), "'c'");
  ExpectMisuse(with([](Schema& s) { s.down[0].phases = {Phase(1)}; }), "model");
  ExpectMisuse(with([](Schema& s) { s.metrics = {{"Clip rate", Reduction::kMean}}; }), "Clip rate");
  ExpectMisuse(with([](Schema& s) { s.metrics = {{"all", Reduction::kCollect}}; }), "'all'");
}

TEST(Random, AStreamDependsOnlyOnItsFiveInputs) {
  const auto first = [](const ClientContext& context, absl::string_view purpose) {
    return context.Random(purpose).NextU64();
  };
  const auto base = [] {
    ClientContext context;
    context.seed = 1;
    context.round = Round(2);
    context.client = ClientId(3);
    return context;
  };
  const uint64_t number = first(base(), "mask");
  EXPECT_EQ(first(base(), "mask"), number);
  ClientContext other = base();
  other.weight = 7;  // what else is in a context has no part in it
  EXPECT_EQ(first(other, "mask"), number);
  EXPECT_NE(first(base(), "noise"), number);
  (other = base()).seed = 2;
  EXPECT_NE(first(other, "mask"), number);
  (other = base()).round = Round(3);
  EXPECT_NE(first(other, "mask"), number);
  (other = base()).phase = Phase(1);
  EXPECT_NE(first(other, "mask"), number);
  (other = base()).client = ClientId(4);
  EXPECT_NE(first(other, "mask"), number);

  // Pinned: a run that is repeated by another release draws the same numbers.
  EXPECT_EQ(number, 4793602169940610467u);
  const ServerContext server{.round = Round(2), .seed = 1};
  EXPECT_EQ(server.Random("mask").NextU64(), 11896660188137288383u);
  ClientContext zero = base();
  zero.client = ClientId(0);
  EXPECT_NE(first(zero, "mask"), server.Random("mask").NextU64()) << "none of a client's";
}

Description Counting() {
  return Rule(
      [](const ClientContext& context, ClientResult& result) {
        const double c = static_cast<double>(context.client.value);
        result.metrics = {{"clipped", c == 2 ? 1 : 0}, {"norm", 0.1 * (c + 1)}, {"largest", -c}};
      },
      [](Schema& schema) {
        schema.metrics = {{"clipped", Reduction::kFixedSum},
                          {"norm", Reduction::kWeightedMean},
                          {"largest", Reduction::kMax}};
      });
}

TEST(Metrics, AreSumsMeansAndMaximaOfWhatClientsReport) {
  RoundLoop loop(Counting(), Q4(), {});
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_EQ(loop.metrics().at("clipped"), 1);
  EXPECT_DOUBLE_EQ(loop.metrics().at("norm"), 0.1 * (1 + 4 + 9 + 16) / 10);  // by examples
  EXPECT_EQ(loop.metrics().at("largest"), 0);
  RoundLoop backward(Counting(), Q4(), {});
  ASSERT_TRUE(backward.Round({3, 1, 0, 2}).ok());
  EXPECT_EQ(backward.metrics(), loop.metrics()) << "the same bits in any order";
  ASSERT_TRUE(loop.Round({}).ok());
  EXPECT_EQ(loop.metrics(), (std::map<std::string, double>{{"clipped", 0}}))
      << "a mean over nobody is none";
}

TEST(Metrics, DoNotTouchTheModel) {
  RoundLoop with(Counting(), Q4(), {}), without(Builtin("fedavg"), Q4(), {});
  ASSERT_TRUE(with.Rounds(10).ok());
  ASSERT_TRUE(without.Rounds(10).ok());
  EXPECT_EQ(with.ModelDigest(), without.ModelDigest());
}

TEST(Metrics, OneThatIsMissingOrUnknownIsAProgrammingErrorWithItsName) {
  const auto reports = [](std::vector<std::pair<std::string, double>> metrics) {
    return OneRound(Rule([metrics](const auto&, ClientResult& r) { r.metrics = metrics; },
                         [](Schema& schema) {
                           schema.metrics = {{"norm", Reduction::kMean}, {"epsilon", std::nullopt}};
                         }));
  };
  EXPECT_TRUE(reports({{"norm", 1}}).ok());
  ExpectMisuse(reports({}), "'norm'");
  ExpectMisuse(reports({{"norm", 1}, {"nrom", 1}}), "'nrom'");
  ExpectMisuse(reports({{"norm", 1}, {"epsilon", 1}}), "'epsilon'");
}

TEST(Metrics, AValueThatIsNotFiniteOrBeyondItsBoundLeavesTheClientOut) {
  for (const double value : {std::nan(""), double{INFINITY}, 2e12}) {
    const absl::Status status = OneRound(Rule(
        [value](const auto&, ClientResult& r) {
          r.metrics = {{"norm", value}};
        },
        [](Schema& s) {
          s.metrics = {{"norm", Reduction::kMean}};
        }));
    EXPECT_THAT(std::string(status.message()), HasSubstr("norm")) << value;
    EXPECT_NE(status.code(), absl::StatusCode::kInternal) << "the client's doing, not the rule's";
  }
}

// Looks at the losses of three starts, trains from the best and looks again.
class Branching final : public DeltaClient {
 public:
  using DeltaClient::DeltaClient;
  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    training::LocalPlan plan;
    for (const double start : {3.0, 0.0, -3.0}) {
      training::Stage loss = LocalWork(context, workspace);
      loss.kind = training::StageKind::kLoss;
      const VectorView at = workspace.Vector(layout_);
      Fill(start, at);
      loss.start = at;
      plan.stages.push_back(loss);
    }
    return plan;
  }
  absl::StatusOr<training::LocalPlan> Continue(const ClientContext& context,
                                               std::span<const training::StageOutcome> outcomes,
                                               Workspace& workspace) const override {
    training::LocalPlan next;
    next.stages.push_back(LocalWork(context, workspace));
    if (outcomes.size() == 3) {  // train from x
      if (outcomes[1].sums[1] > outcomes[0].sums[1]) next.stages.push_back(next.stages[0]);
      return next;
    }
    if (outcomes.size() > 5) return training::LocalPlan();
    next.stages[0].start = training::StageEnd{outcomes.size() - 1};
    return next;
  }
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    return ClientResult{.up = {{"delta", Delta(context, outcomes.back().end, workspace)}}};
  }
};

TEST(Continue, AddsStagesByWhatCameOutUntilItAddsNone) {
  Description rule = Builtin("fedavg");
  rule.client = MakeClient<Branching>;
  // Client 0 has its optimum at (1, 2): it likes 0 better than 3, and trains 4 … 6 from ends.
  RoundLoop loop(rule, Q4(), {.steps = 5});
  ASSERT_TRUE(loop.Round({0}).ok());
  RoundLoop plain(Builtin("fedavg"), Q4(), {.steps = 15});
  ASSERT_TRUE(plain.Round({0}).ok());
  EXPECT_LT(Distance(loop.Model(), plain.Model()), 1e-15);
  // Client 3's is at (2, 4): it likes 3 better, so one stage is begun anew and the last two go on.
  RoundLoop far(rule, Q4(), {.steps = 5}), two(Builtin("fedavg"), Q4(), {.steps = 10});
  ASSERT_TRUE(far.Round({3}).ok());
  ASSERT_TRUE(two.Round({3}).ok());
  EXPECT_LT(Distance(far.Model(), two.Model()), 1e-15);
}

TEST(Phases, MimeSendsItsGradientOnlyWhereItIsUsed) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  algorithms::Setup setup;
  setup.config = *registry.Complete({"mime", {}});
  setup.layout = Plain(1000, DType::kF32);
  for (const auto& [base, moments] : {std::pair("sgd", 0), {"momentum", 1}, {"adam", 2}}) {
    setup.config.parameters["base"] = base;
    const Schema schema = *Builtin("mime").schema(setup);
    // Phase 0: x down, ∇f_i up. Phase 1: x, c and s down, Δ_i up.
    EXPECT_EQ(DownLayouts(schema, Phase(0)).size(), 1u);
    EXPECT_EQ(DownLayouts(schema, Phase(1)).size(), 2u + moments);
    ASSERT_EQ(UpChannels(schema, Phase(0)).size(), 1u);
    EXPECT_EQ(UpChannels(schema, Phase(0))[0].name, "gradient");
    ASSERT_EQ(UpChannels(schema, Phase(1)).size(), 1u);
    EXPECT_EQ(UpChannels(schema, Phase(1))[0].name, "delta");
  }
}

// Trains in phase 0 and keeps Δ_i; sends it in phase 1, where there is nothing to train.
class SendingLater final : public DeltaClient {
 public:
  using DeltaClient::DeltaClient;
  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    if (context.phase == Phase(1)) return training::LocalPlan();
    return DeltaClient::Prepare(context, workspace);
  }
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    if (context.phase == Phase(1)) return ClientResult{.up = {{"delta", context.State("kept")}}};
    const VectorView delta = Delta(context, outcomes[0].end, workspace);
    return ClientResult{.up = {{"first", delta}}, .state = {{"kept", delta}}};
  }
};

class TwoPhases final : public MeanDeltaServer {
 public:
  using MeanDeltaServer::MeanDeltaServer;
  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    if (context.phase == Phase(0)) return AfterApply::kNextPhase;
    return MeanDeltaServer::Apply(context, std::move(aggregate));
  }
};

TEST(Phases, ALaterPhaseSeesWhatAnEarlierOneKept) {
  Description rule = Builtin("fedavg");
  rule.name = "later";
  rule.schema = [](const algorithms::Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema = MeanDeltaSchema(setup);
    schema.up.push_back(schema.up[0]);
    schema.up[0].phases = {Phase(1)};
    schema.up[1].name = "first";
    schema.up[1].phases = {Phase(0)};
    schema.state = {{"kept", setup.layout}};
    return schema;
  };
  rule.server = MakeServer<TwoPhases>;
  rule.client = MakeClient<SendingLater>;
  RoundLoop later(rule, Q4(), {}), fedavg(Builtin("fedavg"), Q4(), {});
  ASSERT_TRUE(later.Rounds(10).ok());
  ASSERT_TRUE(fedavg.Rounds(10).ok());
  EXPECT_EQ(later.ModelDigest(), fedavg.ModelDigest());
}

class EndlessPhases final : public MeanDeltaServer {
 public:
  using MeanDeltaServer::MeanDeltaServer;
  absl::StatusOr<AfterApply> Apply(const ServerContext&, aggregation::Aggregate) override {
    return AfterApply::kNextPhase;
  }
};

TEST(Phases, WithoutEndAreRefused) {
  Description rule = Rule([](const ClientContext&, ClientResult&) {});
  rule.server = MakeServer<EndlessPhases>;
  ExpectMisuse(OneRound(rule), "Apply asks for another phase of a round that has had 64");
}

// Three numbers beside the model.
class KeepingNumbers final : public MeanDeltaServer {
 public:
  KeepingNumbers(const Setup& setup, FlatVector model) : MeanDeltaServer(setup, std::move(model)) {
    kept_.Vector("three", FlatVector(Layout()));
  }
  static LayoutPtr Layout() { return ParameterLayout::Scalars("value", 3, DType::kF64); }
};

TEST(Saved, AVectorOfAnotherLayoutThanTheChannelsIsInTheSchema) {
  Description rule = Rule([](const ClientContext&, ClientResult&) {});
  rule.server = MakeServer<KeepingNumbers>;
  RoundLoop straight(rule, Q4(), {}), resumed(rule, Q4(), {});
  ASSERT_TRUE(straight.Rounds(1).ok());
  ExpectMisuse(resumed.ResumeFrom(straight), "'three'");
  rule = Rule([](const ClientContext&, ClientResult&) {},
              [](Schema& schema) { schema.saved.push_back(KeepingNumbers::Layout()); });
  rule.server = MakeServer<KeepingNumbers>;
  RoundLoop named(rule, Q4(), {});
  EXPECT_TRUE(named.ResumeFrom(straight).ok());
}

// Keeps x of its last odd round in "odd", and of its last even round in "even".
class KeepingInTurns final : public DeltaClient {
 public:
  using DeltaClient::DeltaClient;
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result,
                           DeltaClient::Conclude(context, outcomes, workspace));
    const char* const item = context.round.value % 2 == 1 ? "odd" : "even";
    result.state = {{item, context.model()}};
    return result;
  }
};

TEST(State, AnItemThatATurnDoesNotReturnStaysAsItWas) {
  Description rule = Builtin("fedavg");
  rule.name = "turns";
  rule.schema = [](const algorithms::Setup& setup) -> absl::StatusOr<Schema> {
    Schema schema = MeanDeltaSchema(setup);
    schema.state = {{"odd", setup.layout}, {"even", setup.layout}};
    return schema;
  };
  rule.client = MakeClient<KeepingInTurns>;
  RoundLoop loop(rule, Q4(), {});
  const auto first = loop.Model();
  ASSERT_TRUE(loop.Rounds(1).ok());
  const auto second = loop.Model();
  EXPECT_EQ(loop.State(0, 0), first);
  EXPECT_EQ(loop.State(0, 1), std::vector<double>(first.size(), 0));
  ASSERT_TRUE(loop.Rounds(1).ok());
  EXPECT_EQ(loop.State(0, 0), first);
  EXPECT_EQ(loop.State(0, 1), second);
}

TEST(Phases, AVectorOfAnotherPhaseIsAProgrammingErrorThatSaysSo) {
  Description rule =
      Rule([](const ClientContext& context, ClientResult&) { context.Down("later"); },
           [](Schema& schema) {
             schema.down.push_back({"later", schema.down[0].layout, {Phase(1)}});
           });
  ExpectMisuse(OneRound(rule), "phase 0");
}

}  // namespace
}  // namespace macaw::algorithms
