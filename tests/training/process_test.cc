// A program of the owner's as a trainer: what it is told, what comes back, and what happens when it
// fails. tests/training/own_program.cc is the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/page_pool.h"
#include "models/spec.h"
#include "testing/disk_space.h"
#include "testing/temporary_folder.h"
#include "tests/training/testing.h"
#include "training/api/hooks.h"
#include "training/backends.h"

namespace macaw::training {
namespace {

using macaw::testing_support::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

class OwnersProgram : public testing::Test {
 protected:
  TrainerSetup Setup(const std::string& mode, const std::string& rows = "") const {
    TrainerSetup setup;
    setup.spec = SpecOf({"linear 3"}, {4}, 3, DType::kF32);
    setup.backend.name = kProcessBackend;
    setup.backend.program = {.command = {MACAW_OWN_PROGRAM, folder_ / "starts", mode},
                             .folder = folder_.path()};
    if (!rows.empty()) setup.backend.program.command.push_back(rows);
    return setup;
  }
  std::unique_ptr<LocalTrainer> Make(const TrainerSetup& setup) {
    absl::StatusOr<std::unique_ptr<LocalTrainer>> trainer = backends_.MakeTrainer(setup);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    return *std::move(trainer);
  }
  ClientTask Task(uint64_t client) const {
    ClientTask task = TaskOf(examples_.Classes());
    task.client = ClientId(client);
    task.train.client_name = absl::StrCat("silo-", client);
    return task;
  }
  absl::StatusOr<std::vector<StageOutcome>> Turn(LocalTrainer& trainer, uint64_t client) {
    return trainer.Run({.stages = {StageFrom(View(start_), 0.1)}}, Task(client));
  }
  // The reason for which a client is left out.
  std::string Fault(LocalTrainer& trainer, uint64_t client) {
    const absl::Status status = Turn(trainer, client).status();
    EXPECT_TRUE(IsClientFault(status)) << status;
    return std::string(status.message());
  }
  size_t starts() const { return ReadFile(folder_ / "starts")->size(); }

  const TemporaryFolder folder_;
  Backends backends_{""};
  const FlatVector start_ = models::InitialModel(Setup("plain").spec, 2);
  const Examples examples_ = RandomExamples(20, 4, 3, 1);
};

TEST_F(OwnersProgram, TrainsAsTheFusedKernelsDoWhereItDoesTheSame) {
  std::ofstream rows(folder_ / "rows");
  rows.precision(9);
  rows << 4 << "\n";
  const data::Rows train = examples_.Classes();
  for (size_t i = 0; i < 20; ++i) {
    rows << train.block.classes[i];
    for (size_t j = 0; j < 4; ++j)
      rows << " " << reinterpret_cast<const float*>(train.block.features)[i * 4 + j];
    rows << "\n";
  }
  rows.close();
  const auto own = Make(Setup("plain", folder_ / "rows"));
  const auto fused = *FusedBackend().MakeTrainer(Setup("plain"));
  Stage stage = StageFrom(View(start_), 0.3);
  stage.local.steps = 5;
  const StageOutcome theirs = MustRun(*own, {.stages = {stage}}, Task(0))[0],
                     ours = MustRun(*fused, {.stages = {stage}}, Task(0))[0];
  for (size_t i = 0; i < ours.end.layout()->size(); ++i)
    EXPECT_NEAR(theirs.end.As<float>()[i], ours.end.As<float>()[i], 1e-6) << i;
  EXPECT_EQ(theirs.steps, ours.steps);
  EXPECT_EQ(theirs.examples, ours.examples);
  EXPECT_DOUBLE_EQ(theirs.rate_sum, ours.rate_sum);
  EXPECT_DOUBLE_EQ(theirs.a_norm1, ours.a_norm1);
  EXPECT_EQ(theirs.sums[0], ours.sums[0]);
  EXPECT_NEAR(theirs.sums[1], ours.sums[1], 1e-4);
}

TEST_F(OwnersProgram, IsToldWhoTrainsAndAllOfLocal) {
  const auto trainer = Make(Setup("plain"));
  ASSERT_TRUE(Turn(*trainer, 11).ok());
  const Json told = Json::parse(*ReadFile(folder_ / "train.json"));
  EXPECT_EQ(told["name"], "silo-11");
  EXPECT_EQ(told["rows"], 20);
  EXPECT_EQ(told["round"], 3);
  EXPECT_EQ(told["local"]["lr"], 0.1);
  const settings::Section<LocalConfig> section = LocalSection();
  for (const auto& field : section.fields())
    EXPECT_NE(told["local"].contains(field.key), field.key.starts_with("lr_schedule."))
        << field.key;
}

// So that it can choose a GPU. The one that was started for the profile becomes the first slot's.
TEST_F(OwnersProgram, IsToldItsSlot) {
  TrainerSetup setup = Setup("plain");
  setup.backend.program.first_slot = 4;
  setup.backend.program.slots = 8;
  ASSERT_TRUE(backends_.ProfileOf(setup).ok());
  std::vector<std::unique_ptr<LocalTrainer>> trainers;
  for (const uint32_t lane : {2u, 0u, 1u}) {
    setup.lane = lane;
    trainers.push_back(Make(setup));
    const absl::Status turned = Turn(*trainers.back(), 11).status();
    ASSERT_TRUE(turned.ok()) << turned;
  }
  EXPECT_EQ(*ReadFile(folder_ / "slots"), "4 of 8\n6 of 8\n5 of 8\n");
}

TEST_F(OwnersProgram, GetsCorrectionAndAnchor) {
  const auto trainer = Make(Setup("corrects"));
  const FlatVector pull = models::InitialModel(Setup("plain").spec, 3);
  Stage stage = StageFrom(View(start_), 0.1);
  stage.correction = {
      .mu = 0.5, .anchor = pull.view(), .v = {{pull.view(), 2}, {View(start_), -1}}};
  const ConstVectorView end = MustRun(*trainer, {.stages = {stage}}, Task(0))[0].end;
  EXPECT_FLOAT_EQ(end.As<float>()[0], 2.5F * pull.As<float>()[0]);
}

// Each turn begins with the weights that it is given, whatever the end held before.
TEST_F(OwnersProgram, MayTrainWhereTheEndLies) {
  const auto trainer = Make(Setup("in place")), other = Make(Setup("plain"));
  for (const uint64_t client : {11, 0, 11}) {
    const auto outcome = Turn(*trainer, client);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(Json::parse(*ReadFile(folder_ / "train.json"))["in_place"], true);
    const auto expected = Turn(*other, 0);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_TRUE(
        std::ranges::equal(outcome->front().end.As<float>(), expected->front().end.As<float>()));
  }
}

// Where the shared memory lies in a file. The setting is the process's, so this has a process of
// its own, which ends with 0 if all holds.
void TrainInFiles(const std::function<std::unique_ptr<LocalTrainer>(const TrainerSetup&)>& make,
                  TrainerSetup setup, const ClientTask& task, const std::string& folder) {
  const auto must = [](bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "not so: %s\n", what);
    std::_Exit(1);
  };
  must(KeepLargeBlocksIn(folder, 4096).ok(), "the folder takes files");
  setup.spec = SpecOf({"linear 3"}, {40000}, 3, DType::kF32);
  const FlatVector start = models::InitialModel(setup.spec, 2);
  const FlatVector pull = models::InitialModel(setup.spec, 3);
  const uint64_t vector = start.layout()->bytes(), some = 16 * 4096;
  {
    const auto trainer = make(setup);
    Stage stage = StageFrom(start.view(), 0.1);
    stage.correction = {.mu = 0.5, .anchor = pull.view(), .v = {{pull.view(), 2}}};
    std::vector<float> first;
    for (int turn = 0; turn < 3; ++turn) {
      const ConstVectorView end = MustRun(*trainer, {.stages = {stage}}, task)[0].end;
      const std::span<const float> values = end.As<float>();
      if (turn == 0) first.assign(values.begin(), values.end());
      must(std::ranges::equal(values, first), "each turn gives the same");
      must(macaw::testing_support::BytesOnDisk(folder) <= vector + some, "the end alone is left");
      must(trainer->Evaluate(start.view(), task.train, 5, 15, 200).ok(), "it evaluates");
      must(macaw::testing_support::BytesOnDisk(folder) >= 2 * vector,
           "the model is evaluated there");
    }
  }
  std::_Exit(0);
}

TEST_F(OwnersProgram, LeavesItsEndAloneOnTheDisk) {
  const std::string scratch = folder_ / "scratch";
  std::filesystem::create_directory(scratch);
  EXPECT_EXIT(TrainInFiles([&](const TrainerSetup& setup) { return Make(setup); },
                           Setup("corrects"), Task(0), scratch),
              testing::ExitedWithCode(0), "");
}

TEST_F(OwnersProgram, CannotChangeGapsAndParametersThatAreNotTrained) {
  const auto trainer = Make(Setup("plain"));
  Stage stage = StageFrom(View(start_), 0.1);
  stage.trainable = std::make_shared<std::vector<bool>>(std::vector<bool>{true, false});
  const ConstVectorView end = MustRun(*trainer, {.stages = {stage}}, Task(0))[0].end;
  const auto entries = end.layout->entries();
  std::vector<float> expected(end.size(), 0.0F);
  for (size_t i = 0; i < entries[0].size; ++i) expected[i] = start_.As<float>()[i] + 1;
  for (size_t i = 0; i < entries[1].size; ++i)
    expected[entries[1].offset + i] = start_.As<float>()[entries[1].offset + i];
  EXPECT_THAT(end.As<float>(), testing::ElementsAreArray(expected));
  EXPECT_GT(end.size(), entries[0].size + entries[1].size) << "there are gaps";
}

// Statistics are not trained by gradients, and a stage may keep them.
TEST_F(OwnersProgram, CannotChangeStatisticsOfAStageThatKeepsThem) {
  TrainerSetup setup = Setup("plain");
  setup.spec = SpecOf({"batchnorm", "flatten", "linear 3"}, {1, 2, 2}, 3, DType::kF32);
  const FlatVector start = models::InitialModel(setup.spec, 2);
  const auto& entries = start.layout()->entries();
  std::vector<bool> trainable;
  for (const auto& entry : entries) trainable.push_back(entry.group != Group::kBuffer);
  ASSERT_THAT(trainable, testing::Contains(false));
  const auto trainer = Make(setup);
  Stage stage = StageFrom(View(start), 0.1);
  for (const bool keeps : {true, false}) {
    stage.trainable = keeps ? std::make_shared<std::vector<bool>>(trainable) : nullptr;
    const ConstVectorView end = MustRun(*trainer, {.stages = {stage}}, Task(0))[0].end;
    for (size_t e = 0; e < entries.size(); ++e) {
      const float by = keeps && !trainable[e] ? 0.0F : 1.0F;
      const size_t at = entries[e].offset;
      EXPECT_FLOAT_EQ(end.As<float>()[at], start.As<float>()[at] + by) << entries[e].name;
    }
  }
}

TEST_F(OwnersProgram, KeepsTheEndsOfEarlierStages) {
  const auto trainer = Make(Setup("plain"));
  Stage second = StageFrom(StageEnd{0}, 0.1);
  const auto outcomes =
      MustRun(*trainer, {.stages = {StageFrom(View(start_), 0.1), second}}, Task(0));
  EXPECT_FLOAT_EQ(outcomes[0].end.As<float>()[0], start_.As<float>()[0] + 1);
  EXPECT_FLOAT_EQ(outcomes[1].end.As<float>()[0], start_.As<float>()[0] + 2);
}

TEST_F(OwnersProgram, ThatDiesLeavesItsClientOutAndIsStartedAgain) {
  const auto trainer = Make(Setup("plain"));
  const size_t before = starts();
  EXPECT_THAT(Fault(*trainer, 1),
              AllOf(HasSubstr("client 1"),
                    HasSubstr("exit code 3: the disk is on fire | opening the rows")));
  EXPECT_TRUE(Turn(*trainer, 0).ok());
  EXPECT_EQ(starts(), before + 1);
  EXPECT_THAT(Fault(*trainer, 2), HasSubstr("killed by signal 9"));
  EXPECT_TRUE(Turn(*trainer, 0).ok());
  EXPECT_EQ(starts(), before + 2);
}

TEST_F(OwnersProgram, ThatTakesTooLongIsKilledAndStartedAgain) {
  TrainerSetup setup = Setup("plain");
  setup.backend.program.turn_seconds = 5;
  const auto trainer = Make(setup);
  EXPECT_THAT(Fault(*trainer, 3), HasSubstr("longer than 5 s (workers.turn_seconds)"));
  EXPECT_TRUE(Turn(*trainer, 0).ok());
}

TEST_F(OwnersProgram, ThatAnswersNonsenseIsStartedAgain) {
  const auto trainer = Make(Setup("plain"));
  for (const auto& [client, why] :
       std::vector<std::pair<uint64_t, std::string>>{{4, "loss 0.3"},
                                                     {7, "the id"},
                                                     {8, "\"loss\""},
                                                     {9, "no rows can give"},
                                                     {16, "\"rate_sum\" is a number from 0 on"}}) {
    const size_t before = starts();
    EXPECT_THAT(Fault(*trainer, client), AllOf(HasSubstr("cannot be understood"), HasSubstr(why)));
    EXPECT_TRUE(Turn(*trainer, 0).ok());
    EXPECT_EQ(starts(), before + 1);
  }
}

TEST_F(OwnersProgram, ThatSaysWhatWentWrongIsNotStartedAgain) {
  const auto trainer = Make(Setup("plain"));
  const size_t before = starts();
  for (int turn = 0; turn < 5; ++turn)
    EXPECT_THAT(Fault(*trainer, 5), HasSubstr("ValueError: no rows (train.py:12); trace: "
                                              "train.py:40 in train | train.py:12 in open"));
  EXPECT_TRUE(Turn(*trainer, 0).ok());
  EXPECT_EQ(starts(), before);
}

TEST_F(OwnersProgram, OfALongErrorTheBeginningAndTheEndOfTheTraceAreKept) {
  const auto trainer = Make(Setup("plain"));
  const std::string fault = Fault(*trainer, 12);
  EXPECT_LT(fault.size(), 2000u);
  EXPECT_THAT(fault, AllOf(HasSubstr("ValueError: mmm"), HasSubstr("t | the last line")));
}

TEST_F(OwnersProgram, MayDivergeAsAnyTrainer) {
  const auto trainer = Make(Setup("plain"));
  const auto weights = Turn(*trainer, 6), losses = Turn(*trainer, 10);
  ASSERT_TRUE(weights.ok() && losses.ok()) << "whoever adds it refuses it";
  EXPECT_TRUE(std::isnan((*losses)[0].sums[1]));
}

TEST_F(OwnersProgram, ThatSaysItsLossesAloneHasUnknownCounts) {
  const auto trainer = Make(Setup("plain"));
  const auto turn = Turn(*trainer, 0);
  ASSERT_TRUE(turn.ok()) << turn.status();
  const MetricSums& sums = (*turn)[0].sums;
  EXPECT_EQ(sums[0], 20);
  EXPECT_EQ(sums[1], 10);
  for (size_t i = 2; i < sums.size(); ++i) EXPECT_TRUE(std::isnan(sums[i])) << "and not 0";
}

TEST_F(OwnersProgram, MaySayAtWhatRatesItHasTrained) {
  const auto trainer = Make(Setup("plain"));
  const auto silent = Turn(*trainer, 0), says = Turn(*trainer, 14), no_sgd = Turn(*trainer, 15);
  ASSERT_TRUE(silent.ok() && says.ok() && no_sgd.ok());
  EXPECT_EQ((*silent)[0].rate_sum, 0.1 * 4) << "as [local] says";
  EXPECT_EQ((*silent)[0].a_norm1, 4);
  EXPECT_EQ((*says)[0].rate_sum, 0.3);
  EXPECT_EQ((*says)[0].a_norm1, 5);
  EXPECT_TRUE(std::isnan((*no_sgd)[0].rate_sum) && std::isnan((*no_sgd)[0].a_norm1));
}

TEST_F(OwnersProgram, ThatFailsThreeTimesInARowEndsTheWork) {
  const auto trainer = Make(Setup("dies"));
  EXPECT_THAT(Fault(*trainer, 0), HasSubstr("exit code 7"));
  EXPECT_THAT(Fault(*trainer, 0), HasSubstr("exit code 7"));
  const absl::Status status = Turn(*trainer, 0).status();
  EXPECT_FALSE(IsClientFault(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("exit code 7"), HasSubstr("3 times in a row")));
}

TEST_F(OwnersProgram, ThatDoesNotStartIsSaidBeforeTheRun) {
  for (const absl::Status& status : {backends_.ProfileOf(Setup("broken")).status(),
                                     backends_.MakeTrainer(Setup("broken")).status()}) {
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("workers.command"), HasSubstr("No module named 'jax'")));
  }
  TrainerSetup none = Setup("plain");
  none.backend.program.command = {"/no/such/program"};
  EXPECT_THAT(std::string(backends_.ProfileOf(none).status().message()),
              HasSubstr("/no/such/program"));
  none.backend.program.command.clear();
  EXPECT_THAT(std::string(backends_.CheckFor(none).message()), HasSubstr("workers.command"));
}

TEST_F(OwnersProgram, NamesItselfAndIsStartedOnceForNameAndFirstSlot) {
  const TrainerSetup setup = Setup("plain");
  const NumericProfile profile = *backends_.ProfileOf(setup);
  EXPECT_EQ(profile.trainer, "process");
  EXPECT_EQ(profile.libraries, "own program plain");
  { const auto tried = Make(setup); }
  const auto trainer = Make(setup);
  EXPECT_TRUE(Turn(*trainer, 0).ok());
  EXPECT_EQ(starts(), 1u);
  const auto second_slot = Make(setup);
  EXPECT_EQ(starts(), 2u);
}

TEST_F(OwnersProgram, RefusesWhatItCannotDo) {
  const auto trainer = Make(Setup("plain"));
  const auto refusal = [&](const Stage& stage) {
    const absl::Status status = trainer->Run({.stages = {stage}}, Task(0)).status();
    EXPECT_FALSE(status.ok() || IsClientFault(status)) << status;
    return std::string(status.message());
  };
  Stage stage = StageFrom(View(start_), 0.1);
  stage.correction.mu = 0.1;
  EXPECT_THAT(refusal(stage), AllOf(HasSubstr("correction"), HasSubstr("own program plain")));
  stage.correction = {.v = {{View(start_)}}};
  EXPECT_THAT(refusal(stage), HasSubstr("correction"));
  stage = StageFrom(View(start_), 0.1);
  stage.kind = StageKind::kGradient;
  EXPECT_THAT(refusal(stage), HasSubstr("gradient"));
  stage.kind = StageKind::kLoss;
  EXPECT_THAT(refusal(stage), HasSubstr("loss"));
  stage = StageFrom(View(start_), 0.1);
  stage.hooks = std::make_shared<Hooks>();
  EXPECT_THAT(refusal(stage), HasSubstr("hook"));
  TrainerSetup hooked = Setup("plain");
  hooked.hooks = true;
  EXPECT_THAT(std::string(backends_.MakeTrainer(hooked).status().message()), HasSubstr("hooks"));
  TrainerSetup noisy = Setup("plain");
  noisy.transform.label_noise = 0.1;
  EXPECT_THAT(std::string(backends_.MakeTrainer(noisy).status().message()),
              HasSubstr("data.label_noise and data.concept_shift do not reach"));
}

// Keys that only another back end can obey.
TEST_F(OwnersProgram, RefusesKeysThatItWouldIgnore) {
  const auto refusal = [&](const std::function<void(TrainerSetup&)>& change) {
    TrainerSetup setup = Setup("plain");
    change(setup);
    return std::string(backends_.MakeTrainer(setup).status().message());
  };
  EXPECT_THAT(refusal([](TrainerSetup& s) { s.local.checkpoint = true; }),
              HasSubstr("local.checkpoint: a program of yours"));
  EXPECT_THAT(refusal([](TrainerSetup& s) { s.local.micro_batch = 3; }),
              HasSubstr("local.micro_batch: a program of yours"));
  EXPECT_THAT(refusal([](TrainerSetup& s) { s.local.precision = "bf16"; }),
              HasSubstr("local.precision: a program of yours"));
  EXPECT_EQ(refusal([](TrainerSetup& s) { s.spec.move_buffers = false; }), "")
      << "a model without statistics";
  EXPECT_THAT(refusal([](TrainerSetup& s) {
                s.spec = SpecOf({"batchnorm", "flatten", "linear 3"}, {1, 2, 2}, 3, DType::kF32);
                s.spec.move_buffers = false;
              }),
              HasSubstr("model.buffers = \"server\": a program of yours"));
}

TEST_F(OwnersProgram, EvaluatesItsOwnRows) {
  const auto trainer = Make(Setup("corrects"));
  data::Rows rows = examples_.Classes();
  const auto sums = [&](uint64_t client) {
    rows.noise.client = ClientId(client);
    return trainer->Evaluate(View(start_), rows, 5, 15, 200);
  };
  EXPECT_THAT(*sums(0),
              testing::ElementsAre(10, testing::DoubleEq(10.0 * start_.As<float>()[0]), 1));
  EXPECT_TRUE(sums(1).ok()) << "it died the first time, and was asked again";
  EXPECT_THAT(std::string(sums(5).status().message()), HasSubstr("no test rows"));
  EXPECT_THAT(std::string(sums(6).status().message()),
              HasSubstr("client 6 cannot be evaluated: the program reports 11 rows, and has 10"));
  const auto plain = Make(Setup("plain"));
  EXPECT_THAT(plain->Evaluate(View(start_), rows, 0, 1, 200).status(),
              testing::Property(&absl::Status::code, absl::StatusCode::kUnimplemented));
}

class OwnersProgramWithRows : public OwnersProgram {
 protected:
  TrainerSetup Given(const std::string& mode = "given") const {
    TrainerSetup setup = Setup(mode);
    setup.backend.program.give_rows = true;
    return setup;
  }
};

TEST_F(OwnersProgramWithRows, GetsThemAsTheModelDoes) {
  TrainerSetup setup = Given();
  setup.transform.scale = 0.5;
  const auto trainer = Make(setup);
  ClientTask task = Task(0);
  const std::vector<uint32_t> chosen = {3, 0, 17};
  task.train.index = chosen;
  ASSERT_TRUE(trainer->Run({.stages = {StageFrom(View(start_), 0.1)}}, task).ok());
  std::ifstream file(folder_ / "given");
  for (const uint32_t row : chosen) {
    int64_t label = -1;
    ASSERT_TRUE(file >> label);
    EXPECT_EQ(label, task.train.block.classes[row]);
    for (size_t k = 0; k < 4; ++k) {
      float value = 0;
      file >> value;
      EXPECT_FLOAT_EQ(
          value, reinterpret_cast<const float*>(task.train.block.features)[row * 4 + k] * 0.5F);
    }
  }
}

TEST_F(OwnersProgramWithRows, MayLeaveItsLossesAndItsEvaluationToItsOutputs) {
  TrainerSetup setup = Given();
  setup.metrics.confusion = true;
  const auto trainer = Make(setup);
  const auto outcome = MustRun(*trainer, {.stages = {StageFrom(View(start_), 0.1)}}, Task(0))[0];
  const double right = std::log(std::exp(1.0) + 2) - 1, wrong = std::log(std::exp(1.0) + 2);
  ASSERT_EQ(outcome.sums.size(), 3u) << "counts are an evaluation's";
  EXPECT_EQ(outcome.sums[0], 20);
  EXPECT_NEAR(outcome.sums[1], 15 * right + 5 * wrong, 1e-6);
  EXPECT_EQ(outcome.sums[2], 15);
  const MetricSums sums = *trainer->Evaluate(View(start_), examples_.Classes(), 4, 20, 8);
  EXPECT_EQ(sums[0], 16);
  EXPECT_EQ(sums[2], 12);
  EXPECT_EQ(sums.size(), 3u + 9u);
}

TEST_F(OwnersProgramWithRows, IsEvaluatedByTheFusedKernelsIfItCannot) {
  const auto own = Make(Given("plain"));
  const auto fused = *FusedBackend().MakeTrainer(Setup("plain"));
  EXPECT_EQ(*own->Evaluate(View(start_), examples_.Classes(), 0, 20, 200),
            *fused->Evaluate(View(start_), examples_.Classes(), 0, 20, 200));
  EXPECT_EQ(backends_.ProfileOf(Given("plain"))->instruction_set,
            FusedBackend().Profile(Setup("plain"))->instruction_set);
}

TEST_F(OwnersProgramWithRows, MayEndTheRun) {
  const auto trainer = Make(Given());
  const absl::Status status = Turn(*trainer, 13).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("client 13"), HasSubstr("round 3"), HasSubstr("KeyError: x")));
}

TEST_F(OwnersProgramWithRows, CannotGetWhatIsNotThere) {
  const auto trainer = Make(Given());
  ClientTask task = Task(0);
  task.train.block.features = nullptr;
  const absl::Status status =
      trainer->Run({.stages = {StageFrom(View(start_), 0.1)}}, task).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("only declared"));
  TrainerSetup flips = Given();
  flips.transform.flip = true;
  EXPECT_THAT(std::string(backends_.MakeTrainer(flips).status().message()),
              HasSubstr("data.augment"));
  TrainerSetup noisy = Given();
  noisy.transform.label_noise = 0.1;
  EXPECT_TRUE(backends_.MakeTrainer(noisy).ok());
}

TEST_F(OwnersProgram, CountsAsWorkingWhileItTrains) {
  WorkCounter work;
  TrainerSetup setup = Setup("plain");
  setup.work = &work;
  const auto trainer = Make(setup);
  const uint64_t before = work.done();
  ASSERT_TRUE(Turn(*trainer, 0).ok());
  EXPECT_GT(work.done(), before);
}

}  // namespace
}  // namespace macaw::training
