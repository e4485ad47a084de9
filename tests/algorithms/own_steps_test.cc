#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sdk/testing/round_loop.h"

// FedSAM, pFedMe, APFL and Per-FedAvg: rules whose hooks ask for gradients at points of their own.

namespace macaw::algorithms {
namespace {

using A = std::array<std::array<double, 2>, 2>;
constexpr double kDecay = 0.3;

Numbers GradientOf(size_t client, const Numbers& w, double decay = 0) {
  Numbers g = Q4()[client].objective->Gradient(w);
  for (size_t i = 0; i < 2; ++i) g[i] += decay * w[i];
  return g;
}

Numbers Plus(const Numbers& a, double factor, const Numbers& b) {
  return {a[0] + factor * b[0], a[1] + factor * b[1]};
}

double ShareOf(size_t client) { return static_cast<double>(client + 1) / 10; }

TEST(Workspace, FindsAVectorByItsNameUntilTheTurnEnds) {
  const LayoutPtr two = Plain(2, DType::kF64), three = Plain(3, DType::kF64);
  Workspace workspace;
  const VectorView other = workspace.Vector(two);
  const VectorView named = workspace.Named("v", two);
  EXPECT_NE(named.bytes.data(), other.bytes.data());
  EXPECT_EQ(workspace.Named("v", two).bytes.data(), named.bytes.data());
  EXPECT_NE(workspace.Named("w", two).bytes.data(), named.bytes.data());
  EXPECT_EQ(workspace.Named("v", three).bytes.size(), three->bytes());
  EXPECT_NE(workspace.Vector(two).bytes.data(), named.bytes.data());
  workspace.Reset();
  // The next client's turn has no name yet: its scratch vectors may take any of them.
  std::vector<const std::byte*> taken;
  for (int i = 0; i < 4; ++i) taken.push_back(workspace.Vector(two).bytes.data());
  EXPECT_NE(std::ranges::find(taken, named.bytes.data()), taken.end());
  EXPECT_EQ(std::ranges::find(taken, workspace.Named("v", two).bytes.data()), taken.end());
}

TEST(FedSam, OneRoundByHand) {
  for (const double decay : {0.0, kDecay}) {
    RoundLoop loop(Builtin("fedsam"), Q4(),
                   {.parameters = {{"rho", .4}}, .start = {1, -1}, .weight_decay = decay});
    Numbers x = {0, 0};
    for (size_t c = 0; c < 4; ++c) {
      Numbers y = {1, -1};
      for (int k = 0; k < 7; ++k) {
        const Numbers g = GradientOf(c, y);
        const Numbers sharp = Plus(y, .4 / std::hypot(g[0], g[1]), g);
        y = Plus(y, -.1, Plus(GradientOf(c, sharp), decay, y));
      }
      x = Plus(x, ShareOf(c), y);
    }
    ASSERT_TRUE(loop.Rounds(1).ok());
    EXPECT_LT(Distance(loop.Model(), x), 1e-14) << decay;
  }
}

TEST(FedSam, WithoutARadiusIsFedAvg) {
  RoundLoop fedsam(Builtin("fedsam"), Q4(), {.parameters = {{"rho", 0.0}}, .momentum = .9});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {.momentum = .9});
  ASSERT_TRUE(fedsam.Rounds(20).ok());
  ASSERT_TRUE(fedavg.Rounds(20).ok());
  EXPECT_EQ(fedsam.ModelDigest(), fedavg.ModelDigest());
}

TEST(FedSam, EndsWhereTheGradientsUphillCancel) {
  RoundLoop loop(Builtin("fedsam"), Q4(), {.steps = 1, .parameters = {{"rho", .4}}});
  ASSERT_TRUE(loop.Rounds(2000).ok());
  Numbers sum = {0, 0};
  for (size_t c = 0; c < 4; ++c) {
    const Numbers g = GradientOf(c, loop.Model());
    sum = Plus(sum, ShareOf(c), GradientOf(c, Plus(loop.Model(), .4 / std::hypot(g[0], g[1]), g)));
  }
  EXPECT_LT(Distance(sum, {0, 0}), 1e-12);
  EXPECT_GT(Distance(loop.Model(), Q4Optimum()), .01);
}

TEST(FedSam, StaysWhereThereIsNoGradient) {
  const auto f = std::make_shared<Quadratic>(A{{{1, 0}, {0, 1}}}, std::array<double, 2>{1, 2});
  RoundLoop loop(Builtin("fedsam"), {{f, 1}}, {.start = {1, 2}});
  ASSERT_TRUE(loop.Rounds(2).ok());
  EXPECT_EQ(loop.Model(), (Numbers{1, 2}));
}

TEST(PFedMe, RoundsByHand) {
  for (const double decay : {0.0, kDecay}) {
    SCOPED_TRACE(decay);
    RoundLoop loop(Builtin("pfedme"), Q4(),
                   {.steps = 3,
                    .parameters = {{"lambda", 2.0},
                                   {"personal_lr", .15},
                                   {"personal_steps", int64_t{4}},
                                   {"server_lr", .7}},
                    .start = {1, -1},
                    .weight_decay = decay});
    Numbers x = {1, -1};
    EXPECT_EQ(loop.Personal(2), x);
    for (int round = 0; round < 2; ++round) {
      Numbers mean = {0, 0};
      for (size_t c = 0; c < 4; ++c) {
        Numbers w = x, theta = x;
        for (int batch = 0; batch < 3; ++batch) {
          for (int k = 0; k < 4; ++k) {
            const Numbers g = GradientOf(c, theta, decay);
            theta = Plus(theta, -.15, Plus(g, 2, Plus(theta, -1, w)));
          }
          w = Plus(w, -.1 * 2, Plus(w, -1, theta));
        }
        mean = Plus(mean, ShareOf(c), w);
        if (c != 1) continue;
        ASSERT_TRUE(loop.Rounds(1).ok());
        EXPECT_LT(Distance(loop.Personal(1), theta), 1e-14);
      }
      x = Plus(Plus(x, -.7, x), .7, mean);  // (1 − β)x + β·mean
      EXPECT_LT(Distance(loop.Model(), x), 1e-14);
    }
  }
}

// Of exact minima θ_i(x) of f_i(θ) + (λ/2)‖θ − x‖² the round stops where Σ p_i λ(x − θ_i) = 0.
TEST(PFedMe, EndsAtTheMinimumOfTheMoreauEnvelopes) {
  for (const double lambda : {.5, 4.0}) {
    SCOPED_TRACE(lambda);
    RoundLoop loop(
        Builtin("pfedme"), Q4(),
        {.steps = 1,
         .parameters = {
             {"lambda", lambda}, {"personal_lr", .1}, {"personal_steps", int64_t{400}}}});
    ASSERT_TRUE(loop.Rounds(1500).ok());
    Numbers sum = {0, 0};
    for (size_t c = 0; c < 4; ++c) {
      const Numbers theta = loop.Personal(c), away = Plus(theta, -1, loop.Model());
      EXPECT_LT(Distance(Plus(GradientOf(c, theta), lambda, away), {0, 0}), 1e-11) << c;
      sum = Plus(sum, ShareOf(c), away);
    }
    EXPECT_LT(Distance(sum, {0, 0}), 1e-11);
    EXPECT_GT(Distance(loop.Model(), Q4Optimum()), .01);
  }
}

// Each pass at a personal model moves its statistics by a tenth, towards the client's examples.
TEST(PersonalModels, HaveTheStatisticsOfTheirOwnPasses) {
  const LayoutPtr layout =
      *ParameterLayout::Make({{.name = "weight", .shape = {2}},
                              {.name = "running_mean", .shape = {1}, .group = Group::kBuffer}},
                             DType::kF64);
  const uint64_t at = layout->Find("running_mean")->offset;
  const auto of_client = [&](const RoundLoop& loop, size_t client) {
    return loop.StateOf(client, 0).As<double>()[at];
  };
  // θ begins as x, and has 4 passes for each of the two batches of client 2, which has 3 examples.
  RoundLoop pfedme(Builtin("pfedme"), Q4(),
                   {.steps = 2, .parameters = {{"personal_steps", int64_t{4}}}, .layout = layout});
  ASSERT_TRUE(pfedme.Rounds(1).ok());
  EXPECT_NEAR(of_client(pfedme, 2), 3 * (1 - std::pow(.9, 8)), 1e-14);
  // v goes on from its last turn.
  RoundLoop apfl(Builtin("apfl"), Q4(),
                 {.steps = 2, .parameters = {{"alpha", 1.0}}, .layout = layout});
  RoundLoop local(Builtin("local"), Q4(), {.steps = 2, .layout = layout});
  ASSERT_TRUE(apfl.Rounds(3).ok());
  ASSERT_TRUE(local.Rounds(3).ok());
  EXPECT_NEAR(of_client(apfl, 2), 3 * (1 - std::pow(.9, 6)), 1e-14);
  for (size_t c = 0; c < 4; ++c)
    EXPECT_NEAR(of_client(apfl, c), of_client(local, c), 1e-14)
        << "local training, of a mixture of 1";
}

TEST(Apfl, LeavesTheGlobalModelToFedAvg) {
  RoundLoop apfl(Builtin("apfl"), Q4(), {.parameters = {{"alpha_lr", .1}}, .weight_decay = kDecay});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {.weight_decay = kDecay});
  ASSERT_TRUE(apfl.SampledRounds(10, 2).ok());
  ASSERT_TRUE(fedavg.SampledRounds(10, 2).ok());
  EXPECT_EQ(apfl.ModelDigest(), fedavg.ModelDigest());
}

// A client's own model and its mixture, by hand.
struct OwnModel {
  Numbers v = {1, -1};
  double alpha = .3;

  // A turn of three batches from y; returns where α's step would go without [0, 1].
  double Turn(size_t client, Numbers y, double alpha_lr, double decay = 0) {
    double free = alpha;
    for (int batch = 0; batch < 3; ++batch) {
      const Numbers g = GradientOf(client, Plus({alpha * v[0], alpha * v[1]}, 1 - alpha, y), decay);
      const Numbers apart = Plus(v, -1, y);
      v = Plus(v, -.1 * alpha, g);
      if (batch == 0) {
        free = alpha - alpha_lr * (apart[0] * g[0] + apart[1] * g[1]);
        alpha = std::min(std::max(free, 0.0), 1.0);
      }
      y = Plus(y, -.1, GradientOf(client, y, decay));
    }
    return free;
  }
};

TEST(Apfl, RoundsByHand) {
  for (const double alpha_lr : {0.0, .02}) {
    for (const double decay : {0.0, kDecay}) {
      SCOPED_TRACE(alpha_lr);
      RoundLoop loop(Builtin("apfl"), Q4(),
                     {.steps = 3,
                      .parameters = {{"alpha", .3}, {"alpha_lr", alpha_lr}},
                      .start = {1, -1},
                      .weight_decay = decay});
      EXPECT_EQ(loop.Personal(2), (Numbers{1, -1}));
      OwnModel own;
      for (int round = 0; round < 3; ++round) {
        own.Turn(2, loop.Model(), alpha_lr, decay);
        ASSERT_TRUE(loop.Rounds(1).ok());
        EXPECT_LT(Distance(loop.State(2, 0), own.v), 1e-14);
        EXPECT_NEAR(loop.State(2, 1)[0], own.alpha, 1e-14);
        EXPECT_LT(Distance(loop.Personal(2), Plus({own.alpha * own.v[0], own.alpha * own.v[1]},
                                                  1 - own.alpha, loop.Model())),
                  1e-14);
      }
      EXPECT_EQ(own.alpha != .3, alpha_lr > 0);
    }
  }
}

TEST(Apfl, KeepsTheMixtureBetweenTheCommonModelAndItsOwn) {
  RoundLoop loop(Builtin("apfl"), Q4(),
                 {.steps = 3, .parameters = {{"alpha", .3}, {"alpha_lr", 2.0}}, .start = {1, -1}});
  std::vector<OwnModel> own(4);
  double least = 0, most = 1;
  for (int round = 0; round < 3; ++round) {
    for (size_t c = 0; c < 4; ++c) {
      const double free = own[c].Turn(c, loop.Model(), 2);
      least = std::min(least, free);
      most = std::max(most, free);
    }
    ASSERT_TRUE(loop.Rounds(1).ok());
    for (size_t c = 0; c < 4; ++c) {
      EXPECT_NEAR(loop.State(c, 1)[0], own[c].alpha, 1e-13) << c;
      EXPECT_LT(Distance(loop.State(c, 0), own[c].v), 1e-13) << c;
    }
  }
  EXPECT_LT(least, -1) << "a step should go beyond each end";
  EXPECT_GT(most, 2);
  EXPECT_LT(Distance(loop.Personal(2), own[2].v), 1e-13) << "of a mixture of 1";
  EXPECT_EQ(loop.Personal(3), loop.Model()) << "of a mixture of 0";
}

TEST(Apfl, OfAMixtureOfOneIsLocalTraining) {
  RoundLoop apfl(Builtin("apfl"), Q4(), {.parameters = {{"alpha", 1.0}}, .start = {3, -2}});
  RoundLoop local(Builtin("local"), Q4(), {.start = {3, -2}});
  ASSERT_TRUE(apfl.Rounds(10).ok());
  ASSERT_TRUE(local.Rounds(10).ok());
  for (size_t c = 0; c < 4; ++c) EXPECT_LT(Distance(apfl.Personal(c), local.Personal(c)), 1e-14);
}

// Of one step a round ∇f_i(v̄) = 0 at the end for any mixture but 0, which has the common model.
TEST(Apfl, EndsAtEachClientsOwnMinimum) {
  RoundLoop loop(Builtin("apfl"), Q4(), {.steps = 1, .parameters = {{"alpha", .5}}});
  ASSERT_TRUE(loop.Rounds(3000).ok());
  for (size_t c = 0; c < 4; ++c)
    EXPECT_LT(Distance(GradientOf(c, loop.Personal(c)), {0, 0}), 1e-11) << c;
  RoundLoop common(Builtin("apfl"), Q4(), {.parameters = {{"alpha", 0.0}}});
  ASSERT_TRUE(common.Rounds(3).ok());
  EXPECT_EQ(common.Personal(1), common.Model());
}

TEST(PerFedAvg, OneRoundByHand) {
  for (const double decay : {0.0, kDecay}) {
    for (const uint32_t steps : {6u, 7u}) {  // the last of an odd number changes nothing
      RoundLoop loop(Builtin("perfedavg"), Q4(),
                     {.steps = steps,
                      .parameters = {{"alpha", .25}},
                      .start = {1, -1},
                      .weight_decay = decay});
      Numbers x = {0, 0};
      for (size_t c = 0; c < 4; ++c) {
        Numbers y = {1, -1};
        for (int k = 0; k < 3; ++k)
          y = Plus(y, -.1, GradientOf(c, Plus(y, -.25, GradientOf(c, y, decay)), decay));
        x = Plus(x, ShareOf(c), y);
      }
      ASSERT_TRUE(loop.Rounds(1).ok());
      EXPECT_LT(Distance(loop.Model(), x), 1e-14) << decay;
    }
  }
}

// A batch with an objective of its own: that of a client of Q4.
class BatchLike final : public training::StepGradients {
 public:
  BatchLike(size_t client, const LayoutPtr& layout) : client_(client), gradient_(layout) {}
  ConstVectorView GradientAt(ConstVectorView point) override {
    SetNumbers(GradientOf(client_, NumbersOf(point)), gradient_.view());
    return gradient_.view();
  }

 private:
  const size_t client_;
  FlatVector gradient_;
};

// RoundLoop has one batch a client, so this takes the client's steps itself.
TEST(PerFedAvg, AdaptsByOneBatchAndStepsByTheNext) {
  RoundLoop loop(Builtin("perfedavg"), Q4(), {.steps = 4, .parameters = {{"alpha", .25}}});
  const LayoutPtr layout = loop.setup().layout;
  FlatVector x(layout);
  SetNumbers({1, -1}, x.view());
  const ConstVectorView model = std::as_const(x).view();
  ClientContext context;
  context.local = loop.setup().local;
  context.broadcast = {&model, 1};
  context.schema = &loop.schema();
  Workspace workspace;
  const auto client = *Builtin("perfedavg").client(loop.setup());
  const training::LocalPlan plan = *client->Prepare(context, workspace);
  FlatVector w = x.Clone();
  for (size_t step = 0; step < 4; ++step) {
    FlatVector g(layout);
    SetNumbers(GradientOf(step, NumbersOf(w.view())), g.view());
    BatchLike batch(step, layout);
    plan.stages[0].hooks->correct(w.view(), g.view(), batch);
    SetNumbers(Plus(NumbersOf(w.view()), -.1, NumbersOf(g.view())), w.view());
  }
  Numbers y = {1, -1};
  for (const size_t first : {0, 2})
    y = Plus(y, -.1, GradientOf(first + 1, Plus(y, -.25, GradientOf(first, y))));
  EXPECT_LT(Distance(NumbersOf(w.view()), y), 1e-14);
}

TEST(PerFedAvg, WithoutAdaptationIsFedAvgOfHalfTheSteps) {
  RoundLoop perfedavg(Builtin("perfedavg"), Q4(), {.steps = 8, .parameters = {{"alpha", 0.0}}});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {.steps = 4});
  ASSERT_TRUE(perfedavg.Rounds(20).ok());
  ASSERT_TRUE(fedavg.Rounds(20).ok());
  EXPECT_EQ(perfedavg.ModelDigest(), fedavg.ModelDigest());
}

TEST(PerFedAvg, EndsWhereTheAdaptedGradientsCancel) {
  RoundLoop loop(Builtin("perfedavg"), Q4(), {.steps = 2, .parameters = {{"alpha", .25}}});
  ASSERT_TRUE(loop.Rounds(3000).ok());
  Numbers sum = {0, 0};
  for (size_t c = 0; c < 4; ++c) {
    const Numbers adapted = Plus(loop.Model(), -.25, GradientOf(c, loop.Model()));
    sum = Plus(sum, ShareOf(c), GradientOf(c, adapted));
  }
  EXPECT_LT(Distance(sum, {0, 0}), 1e-12);
  EXPECT_GT(Distance(loop.Model(), Q4Optimum()), .01);
}

}  // namespace
}  // namespace macaw::algorithms
