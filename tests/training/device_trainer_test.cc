// What the trainer of a device promises besides its numbers: bits that depend on plan and task
// alone, stages that stay on the device, and what happens when memory or the device is gone.
#include "training/device/device_trainer.h"

#include <gmock/gmock.h>

#include <thread>

#include "tests/training/device_cohort.h"
#include "tests/training/device_testing.h"
#include "tests/training/testing.h"
#include "training/api/hooks.h"

namespace macaw::training {
namespace {

using testing::HasSubstr;

TEST(DeviceTrainerBits, DoNotDependOnTheThreadsOfATeam) {
  for (const models::ModelSpec& spec : EveryOperation()) {
    const Cohort cohort(spec, 4);
    const auto one = TeamsOf(1);
    const Outcomes expected = RunAll(*DeviceTrainerOf(cohort.Setup(), *one), cohort.turns());
    for (const uint32_t threads : {3u, 8u}) {
      SCOPED_TRACE(testing::Message() << threads << " threads");
      const auto device = TeamsOf(threads);
      ExpectSame(RunAll(*DeviceTrainerOf(cohort.Setup(), *device), cohort.turns()), expected);
    }
  }
}

// 256 threads share tiles of shared memory, as on a GPU; small teams compute element by element.
TEST(DeviceTrainerBits, AreThoseOfTilesInSharedMemory) {
  for (const models::ModelSpec& spec : EveryOperation()) {
    const Cohort cohort(spec, 1);
    const auto one = TeamsOf(1), many = TeamsOf(256);
    const auto small = DeviceTrainerOf(cohort.Setup(), *one);
    const auto large = DeviceTrainerOf(cohort.Setup(), *many);
    ExpectSame(RunAll(*large, cohort.turns()), RunAll(*small, cohort.turns()));
  }
}

TEST(DeviceTrainerBits, DoNotDependOnTheTurnsAtOnceOrTheirOrder) {
  const Cohort cohort(Everything());
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *device);
  EXPECT_EQ(trainer->turns_at_once(), 8);
  Outcomes expected;
  for (const Turn& turn : cohort.turns()) {
    expected.push_back(BytesOf(MustRun(*trainer, *turn.plan, *turn.task)));
  }
  ExpectSame(RunAll(*trainer, cohort.turns()), expected);
  const uint64_t launches = device->launches();
  std::vector<Turn> backwards(cohort.turns().rbegin(), cohort.turns().rend());
  Outcomes reversed(expected.rbegin(), expected.rend());
  ExpectSame(RunAll(*trainer, backwards), reversed);
  EXPECT_EQ(device->launches() - launches, 3);  // a stage of all of them is one launch
  for (const size_t size : {2u, 3u}) {
    Outcomes parts;
    for (size_t i = 0; i < cohort.turns().size(); i += size) {
      const auto part = cohort.turns().subspan(i, std::min(size, cohort.turns().size() - i));
      for (auto& outcome : RunAll(*trainer, part)) parts.push_back(std::move(outcome));
    }
    ExpectSame(parts, expected);
  }
}

TEST(DeviceTrainerBits, OfLargeBatchesAreThoseOfPasses) {
  // More rows than a pass takes, with dropout; clipped and not.
  RandomRun random(SpecOf({"linear 8", "relu", "dropout 0.4", "linear 3"}, {6}, 3, DType::kF32), 4);
  const FlatVector start = random.Vector(0.3);
  const ClientTask task = TaskOf(random.Rows(300));
  LocalPlan plan;
  plan.stages.push_back(StageFrom(View(start), 0.1));
  plan.stages.push_back(StageFrom(StageEnd{0}, 0.1));
  plan.stages[1].local.clip_norm = 0.01;
  plan.stages[1].local.momentum = 0.5;
  const auto one = TeamsOf(1), three = TeamsOf(3);
  const auto trainer = DeviceTrainerOf(random.Setup(), *one);
  const auto expected = BytesOf(MustRun(*trainer, plan, task));
  EXPECT_TRUE(BytesOf(MustRun(*DeviceTrainerOf(random.Setup(), *three), plan, task)) == expected);
}

TEST(DeviceTrainerBits, OfEveryOptimizerDoNotDependOnTheThreads) {
  RandomRun random(SpecOf({"linear 40", "relu", "linear 3"}, {30}, 3, DType::kF32), 4);
  const FlatVector start = random.Vector(0.3), other = random.Vector(0.3);
  const ClientTask task = TaskOf(random.Rows(20));
  LocalPlan plan;
  for (const char* optimizer : {"sgd", "adam", "adamw"}) {
    for (const char* clip : {"", "gradient", "corrected"}) {
      Stage stage = StageFrom(View(start), 0.05);
      stage.local.optimizer = optimizer;
      stage.local.batch_size = 7;
      stage.local.weight_decay = 0.1;
      stage.correction.mu = 0.5;
      stage.correction.anchor = View(other);
      stage.correction.v = {{View(other), -0.2}};
      if (*clip != 0) {
        stage.local.clip = clip;
        stage.local.clip_norm = 0.1;
      }
      plan.stages.push_back(stage);
    }
  }
  const auto one = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(random.Setup(), *one);
  const auto expected = BytesOf(MustRun(*trainer, plan, task));
  for (const uint32_t threads : {3u, 8u, 256u}) {
    const auto team = TeamsOf(threads);
    const auto many = DeviceTrainerOf(random.Setup(), *team);
    EXPECT_TRUE(BytesOf(MustRun(*many, plan, task)) == expected) << threads << " threads";
  }
}

// Rows that several clients have given, with their noise, in two epochs, two stages and an
// evaluation that begins in the middle: as rows that are stored with it.
TEST(DeviceTrainerBits, OfNoisyRowsAreThoseOfRowsStoredSo) {
  RandomRun random(
      SpecOf({"conv 3 3 pad 1", "relu", "flatten", "linear 3"}, {2, 5, 6}, 3, DType::kF32), 8);
  TrainerSetup setup = random.Setup();
  setup.transform = {
      .scale = 0.01, .mean = {0.3, 0.1}, .pad_crop = 1, .flip = true, .client_noise = 0.7};
  ClientTask task = TaskOf(random.Rows(21));
  const std::vector<data::RowOwner> owners = {{.client = ClientId(2), .first = 0},
                                              {.client = ClientId(4), .first = 8}};
  task.train.noise = {.seed = 6, .client = ClientId(0), .clients = 5};
  task.train.owners = owners;
  const uint64_t count = task.train.size();

  TrainerSetup stored_setup = setup;
  stored_setup.feature_type = data::FeatureType::kF32;
  stored_setup.transform = {.pad_crop = 1, .flip = true};
  const data::BatchGather gather(setup.feature_type, setup.spec.input_shape, setup.transform,
                                 DType::kF32);
  std::vector<float> features(count * gather.example_elements());
  std::vector<int32_t> classes;
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < count; ++i) {
    positions.push_back(i);
    classes.push_back(task.train.block.classes[task.train.at(i)]);
  }
  gather.Gather(task.train, positions, nullptr, std::as_writable_bytes(std::span(features)), {},
                {});
  ClientTask stored = task;
  stored.train = {};
  stored.train.block = {.type = data::FeatureType::kF32,
                        .features = std::as_bytes(std::span(features)).data(),
                        .row_bytes = gather.example_bytes(),
                        .classes = classes.data(),
                        .count = count};

  const FlatVector start = random.Vector(0.2);
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0.1), StageFrom(StageEnd{0}, 0.1)};
  for (Stage& stage : plan.stages) {
    stage.local.epochs = 2;
    stage.local.batch_size = 4;
  }
  plan.stages[1].kind = StageKind::kGradient;
  const auto device = TeamsOf(3);
  const auto trainer = DeviceTrainerOf(setup, *device),
             other = DeviceTrainerOf(stored_setup, *device);
  EXPECT_TRUE(BytesOf(MustRun(*trainer, plan, task)) == BytesOf(MustRun(*other, plan, stored)));
  const auto sums = trainer->Evaluate(View(start), task.train, 7, count, 5);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(*sums, *other->Evaluate(View(start), stored.train, 7, count, 5));
  task.train.noise.client = ClientId(3);  // nobody's noise, where rows have owners
  EXPECT_EQ(*sums, *trainer->Evaluate(View(start), task.train, 7, count, 5));
  task.train.owners = {};
  EXPECT_NE(*sums, *trainer->Evaluate(View(start), task.train, 7, count, 5));
}

TEST(DeviceTrainer, KeepsEndsWhereThePlanFindsThem) {
  const Cohort cohort(SpecOf({"linear 3"}, {4}, 3, DType::kF32), 1);
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *device);
  Stage stage = StageFrom(View(cohort.start()), 0.1);
  LocalPlan plan;
  plan.stages = {stage, stage, stage};
  plan.stages[1].start = StageEnd{0};
  plan.stages[2].start = StageEnd{0};
  plan.stages[2].correction.v = {{StageEnd{0}, 1.0}, {StageEnd{1}, -1.0}};
  plan.stages[2].correction.mu = 0.5;
  plan.stages[2].correction.anchor = StageEnd{1};
  const auto expected = BytesOf(MustRun(*trainer, plan, *cohort.turns()[0].task));
  for (const size_t count : {1u, 2u}) {
    EXPECT_TRUE(BytesOf(MustRun(*trainer, AddedLater(plan, count), *cohort.turns()[0].task)) ==
                expected);
  }
}

TEST(DeviceTrainer, CopiesEndsOutWhenSomebodyLooksAtOne) {
  const Cohort cohort(Everything());
  const size_t bytes = cohort.start().layout()->bytes();
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *device);
  const uint64_t before = device->copied_out();
  // Stages that begin where others end are among them.
  std::vector<Turn> turns;
  for (size_t i = 0; i < cohort.turns().size(); i += 2) turns.push_back(cohort.turns()[i]);
  const std::vector<TurnOutcome> outcomes = trainer->RunMany(turns);
  ASSERT_EQ(outcomes.size(), turns.size());
  EXPECT_LT(device->copied_out() - before, bytes);  // sums of losses
  const uint64_t sums = device->copied_out();
  ASSERT_TRUE(outcomes[0].ok());
  EXPECT_FALSE(outcomes[0]->front().end.view().empty());
  EXPECT_EQ(device->copied_out() - sums, turns.size() * bytes);  // all of that launch
  EXPECT_FALSE(outcomes[1]->front().end.view().empty());
  EXPECT_EQ(device->copied_out() - sums, turns.size() * bytes);
}

TEST(DeviceTrainer, LeavesOutcomesAloneWhileItEvaluates) {
  const Cohort cohort(Everything(), 1);
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *device);
  const auto outcomes = MustRun(*trainer, *cohort.turns()[0].plan, *cohort.turns()[0].task);
  const auto before = BytesOf(outcomes);
  const data::Rows& rows = cohort.turns()[0].task->train;
  ASSERT_TRUE(trainer->Evaluate(View(cohort.start()), rows, 0, rows.size(), 8).ok());
  EXPECT_TRUE(BytesOf(outcomes) == before);
}

TEST(DeviceTrainer, EvaluatesInAnyBatchesToTheSameSums) {
  RandomRun random(Everything(), 3);
  const FlatVector model = random.Vector(0.2);
  const data::Rows rows = random.Rows(150);
  const auto device = TeamsOf(1), team = TeamsOf(3);
  const auto trainer = DeviceTrainerOf(random.Setup(), *device);
  const auto sums = trainer->Evaluate(View(model), rows, 0, 150, 64);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ((*sums)[0], 150);
  EXPECT_EQ(*trainer->Evaluate(View(model), rows, 0, 150, 1), *sums);
  EXPECT_EQ(*DeviceTrainerOf(random.Setup(), *team)->Evaluate(View(model), rows, 0, 150, 20),
            *sums);
  EXPECT_EQ(*trainer->Evaluate(View(model), rows, 40, 40, 8), MetricSums(3));
  EXPECT_FALSE(trainer->Evaluate(View(model), rows, 0, 151, 8).ok());
}

TEST(DeviceTrainer, AnswersUnavailableOnceTheDeviceIsLost) {
  const Cohort cohort(Everything(), 3);
  for (uint64_t operations = 0; operations < 9; ++operations) {
    const auto device = TeamsOf(1);
    const auto trainer = DeviceTrainerOf(cohort.Setup(), *device);
    device->LoseAfter(operations);
    bool lost = false;
    for (const auto& outcome : RunAll(*trainer, cohort.turns())) {
      lost = lost || absl::IsUnavailable(outcome.status());
      EXPECT_FALSE(IsClientFault(outcome.status()));
    }
    EXPECT_TRUE(lost) << operations;
    const data::Rows& rows = cohort.turns()[0].task->train;
    EXPECT_TRUE(
        absl::IsUnavailable(trainer->Evaluate(View(cohort.start()), rows, 0, 2, 8).status()));
    EXPECT_TRUE(absl::IsUnavailable(DeviceTrainer::Make(cohort.Setup(), *device).status()));
  }
}

TEST(DeviceTrainer, SharesADeviceWithOtherSlots) {
  const Cohort cohort(Everything(), 3);
  const auto one = TeamsOf(1);
  const Outcomes expected = RunAll(*DeviceTrainerOf(cohort.Setup(), *one), cohort.turns());
  const auto device = TeamsOf(2, /*seed=*/5);
  std::vector<Outcomes> all(3);
  {
    std::vector<std::jthread> slots;
    for (Outcomes& outcomes : all) {
      slots.emplace_back([&] {
        const auto trainer = DeviceTrainerOf(cohort.Setup(), *device);
        for (int i = 0; i < 3; ++i) outcomes = RunAll(*trainer, cohort.turns());
      });
    }
  }
  for (const Outcomes& outcomes : all) ExpectSame(outcomes, expected);
  EXPECT_EQ(device->used(), 0);
}

TEST(DeviceTrainer, FailsATurnAndNotItsNeighbours) {
  Cohort cohort(Everything(), 6);
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *device);
  const Outcomes expected = RunAll(*trainer, cohort.turns());
  cohort.plan(0).stages[0].local.optimizer = "lamb";
  cohort.plan(1).more = [](auto) { return absl::StatusOr<std::vector<Stage>>(ClientFault("no")); };
  cohort.plan(3).stages[0].start = StageEnd{4};
  std::vector<int32_t> labels(cohort.task(4).train.block.count, 5);
  cohort.task(4).train.block.classes = labels.data();
  const Outcomes outcomes = RunAll(*trainer, cohort.turns());
  EXPECT_THAT(outcomes[0].status().message(), HasSubstr("client 100: stage 0: local.optimizer"));
  EXPECT_TRUE(IsClientFault(outcomes[1].status()));
  EXPECT_THAT(outcomes[3].status().message(), HasSubstr("client 103: stage 0"));
  EXPECT_THAT(outcomes[4].status().message(), HasSubstr("label 5"));
  for (const size_t i : {2, 5}) {
    ASSERT_TRUE(outcomes[i].ok()) << outcomes[i].status();
    EXPECT_TRUE(*outcomes[i] == *expected[i]);
  }
}

TEST(DeviceTrainer, RefusesTokensAndLabelsThatTheModelDoesNotKnow) {
  const auto message = [](int32_t token, int32_t label) {
    RandomRun random(SpecOf({"embedding 6 3", "lstm 4", "linear 5"}, {4}, 5, DType::kF32), 2);
    const auto device = TeamsOf(1);
    const auto trainer = DeviceTrainerOf(random.Setup(), *device);
    const FlatVector start = random.Vector(0.1);
    const std::vector<int32_t> tokens = {1, 2, 0, 3, 1, 1, token, 2}, labels = {1, label};
    ClientTask task = TaskOf(random.Rows(2));
    task.train.block.features = std::as_bytes(std::span(tokens)).data();
    task.train.block.classes = labels.data();
    task.train.block.lengths = nullptr;
    LocalPlan plan;
    plan.stages = {StageFrom(View(start), 0.1)};
    const absl::Status ran = trainer->Run(plan, task).status();
    const absl::Status rated = trainer->Evaluate(View(start), task.train, 1, 2, 8).status();
    EXPECT_EQ(ran.ok(), rated.ok());
    EXPECT_TRUE(trainer->Evaluate(View(start), task.train, 0, 1, 8).ok());
    return std::string(ran.message());
  };
  EXPECT_EQ(message(4, 4), "");
  EXPECT_THAT(message(6, 4), HasSubstr("token 6, the model knows 0 to 5"));
  EXPECT_THAT(message(-1, 4), HasSubstr("token -1"));
  EXPECT_THAT(message(4, 5), HasSubstr("label 5, the model knows 0 to 4"));
  EXPECT_THAT(message(5, 4), HasSubstr("label 5"));  // of the position before
}

TEST(DeviceTrainer, NeedsTextsTasksAndModelsThatFit) {
  const auto device = TeamsOf(1);
  const auto message = [&](const std::vector<std::string>& layers, data::FeatureType type,
                           TaskKind task) {
    TrainerSetup setup;
    setup.spec = SpecOf(layers, {4}, 5, DType::kF32);
    setup.feature_type = type;
    setup.task = task;
    return std::string(DeviceTrainer::Make(setup, *device).status().message());
  };
  const std::vector<std::string> next = {"embedding 5 3", "linear 5"}, vectors = {"linear 5"};
  EXPECT_EQ(message(next, data::FeatureType::kI32, TaskKind::kNextToken), "");
  EXPECT_THAT(message(next, data::FeatureType::kF32, TaskKind::kNextToken),
              HasSubstr("the data does not hold any"));
  EXPECT_THAT(message(next, data::FeatureType::kI32, TaskKind::kClassification),
              HasSubstr("has outputs at each position"));
  EXPECT_THAT(message(vectors, data::FeatureType::kI32, TaskKind::kClassification),
              HasSubstr("begin it with \"embedding TOKENS OUT\""));
}

TEST(DeviceTrainer, NamesTheBatchThatIsTooLargeForBatchNorm) {
  const models::ModelSpec spec =
      SpecOf({"conv 1024 1", "batchnorm", "globalavgpool", "flatten", "linear 2"}, {1, 64, 64}, 2,
             DType::kF32);
  const uint32_t most = ondevice::CompiledModel::Compile(spec, 0)->batch_rows;
  RandomRun random(spec, 1);
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(random.Setup(), *device);
  const FlatVector start = random.Vector(0.1);
  LocalPlan plan;
  plan.stages = {StageFrom(View(start), 0.1)};
  plan.stages[0].local.batch_size = 0;
  const auto outcomes = trainer->Run(plan, TaskOf(random.Rows(most + 1)));
  EXPECT_THAT(outcomes.status().message(),
              HasSubstr("set local.batch_size to " + std::to_string(most) + " or less"));
}

TEST(DeviceTrainer, RefusesStepsWithoutABatch) {
  Cohort cohort(Everything(), 1);
  const auto device = TeamsOf(1);
  const auto trainer = DeviceTrainerOf(cohort.Setup(), *device);
  LocalConfig& local = cohort.plan(0).stages[0].local;
  local.steps = 3;
  local.drop_last = true;
  local.batch_size = 1000;
  const auto outcomes = trainer->Run(cohort.plan(0), cohort.task(0));
  EXPECT_THAT(outcomes.status().message(), HasSubstr("local.steps"));
}

TEST(DeviceTrainer, CountsItsBatches) {
  CountedClient one;
  one.plan.stages[0].local.steps = 4;
  MustRun(*one.trainer, one.plan, one.task());
  EXPECT_EQ(one.work.done(), 4);
}

TEST(DeviceTrainer, RefusesRunsThatItCannotTrain) {
  const models::ModelSpec spec = SpecOf({"linear 3"}, {4}, 3, DType::kF32);
  TrainerSetup setup;
  setup.spec = spec;
  EXPECT_TRUE(DeviceTrainer::Supports(setup).ok());
  const auto refuses = [](const TrainerSetup& changed, const std::string& word) {
    const absl::Status status = DeviceTrainer::Supports(changed);
    EXPECT_TRUE(absl::IsUnimplemented(status)) << word;
    EXPECT_THAT(status.message(), HasSubstr(word));
  };
  TrainerSetup changed = setup;
  changed.dtype = DType::kF64;
  refuses(changed, "float32");
  changed = setup;
  changed.hooks = true;
  refuses(changed, "hooks");
  Stage stage;
  stage.hooks = std::make_shared<const Hooks>();
  EXPECT_THAT(DeviceTrainer::Supports(stage).message(), HasSubstr("hooks"));
}

}  // namespace
}  // namespace macaw::training
