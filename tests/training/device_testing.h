#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/random.h"
#include "data/dataset.h"
#include "data/gather.h"
#include "models/spec.h"
#include "testing/fake_device.h"
#include "tests/training/testing.h"
#include "training/api/trainer.h"
#include "training/device/device_trainer.h"
#include "training/device/kernels.h"

namespace macaw::training {

using testing_support::FakeDevice;
using testing_support::FakeDeviceOptions;

inline std::unique_ptr<FakeDevice> DeviceOf(FakeDeviceOptions options = {}) {
  const auto kernels = DeviceTrainerKernels();
  return std::make_unique<FakeDevice>(
      std::vector<device::HostKernelEntry>(kernels.begin(), kernels.end()), options);
}

inline std::unique_ptr<FakeDevice> TeamsOf(uint32_t threads, uint64_t seed = 0) {
  FakeDeviceOptions options;
  options.threads = threads;
  options.seed = seed;
  return DeviceOf(options);
}

inline std::unique_ptr<DeviceTrainer> DeviceTrainerOf(const TrainerSetup& setup,
                                                      device::Device& device,
                                                      const DeviceLimits& limits = {}) {
  absl::StatusOr<std::unique_ptr<DeviceTrainer>> trainer =
      DeviceTrainer::Make(setup, device, limits);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return trainer.ok() ? *std::move(trainer) : nullptr;
}

// A network with every kind of operation on images.
inline models::ModelSpec Everything() {
  return SpecOf({"conv 4 3 pad 1", "groupnorm 2", "relu", "maxpool 3 stride 2", "block 6 stride 2",
                 "dropout 0.3", "avgpool 2", "tanh", "flatten", "linear 9", "sigmoid", "linear 5"},
                {2, 10, 9}, 5, DType::kF32);
}

// The same, and networks with all others: on texts, with batch norm, and on sequences of numbers.
inline std::vector<models::ModelSpec> EveryOperation() {
  return {
      Everything(),
      SpecOf({"embedding 9 6", "positions", "transformer heads 2 ff 7 causal dropout 0.2",
              "lstm 5 layers 2", "gru 6", "residual [layernorm, linear 6, gelu]", "linear 9"},
             {7}, 9, DType::kF32),
      SpecOf({"embedding 9 6", "attention heads 3", "mean", "linear 5"}, {7}, 5, DType::kF32),
      SpecOf({"embedding 9 6", "lstm 4", "last", "batchnorm", "linear 5"}, {7}, 5, DType::kF32),
      SpecOf({"conv 4 3 nobias", "batchnorm", "relu", "block 6 stride 2 batchnorm", "globalavgpool",
              "flatten", "linear 5"},
             {2, 10, 9}, 5, DType::kF32),
      SpecOf({"linear 6", "layernorm", "positions", "transformer heads 2 ff 7", "lstm 5", "gru 6",
              "residual [dropout 0]", "attention heads 3", "flatten", "batchnorm", "linear 5"},
             {7, 4}, 5, DType::kF32)};
}

// The numbers of a vector in another precision; their layouts have the same entries.
inline FlatVector Converted(ConstVectorView from, const LayoutPtr& to) {
  FlatVector result(to);
  DispatchDType(from.dtype(), [&]<typename From>(From) {
    DispatchDType(to->dtype(), [&]<typename To>(To) {
      for (size_t i = 0; i < to->entries().size(); ++i) {
        const LayoutEntry &source = from.layout->entries()[i], &target = to->entries()[i];
        const auto numbers = from.As<From>().subspan(source.offset, source.size);
        std::ranges::transform(numbers, result.As<To>().begin() + target.offset,
                               [](From number) { return static_cast<To>(number); });
      }
    });
  });
  return result;
}

// Random models, rows and plans, one after another from a stream, so that a failure names its seed.
class RandomRun {
 public:
  explicit RandomRun(uint64_t seed) : stream_({.seed = seed}) {
    task_ = std::array{TaskKind::kClassification, TaskKind::kClassification, TaskKind::kBinary,
                       TaskKind::kRegression}[Below(4)];
    outputs_ = task_ == TaskKind::kClassification ? 2 + static_cast<int64_t>(Below(9)) : 1;
    DrawModel();
    DrawTransform();
  }
  // With a model of the caller's, for this task, or to predict the next token.
  RandomRun(models::ModelSpec spec, uint64_t seed, TaskKind task = TaskKind::kClassification)
      : stream_({.seed = seed}), task_(task) {
    spec_ = std::move(spec);
    outputs_ = spec_.outputs;
    if (spec_.positions > 0) task_ = TaskKind::kNextToken;
    if (spec_.takes_tokens()) {
      type_ = data::FeatureType::kI32;
    } else {
      DrawTransform();
    }
  }

  TrainerSetup Setup() const {
    TrainerSetup setup;
    setup.spec = spec_;
    setup.task = task_;
    setup.transform = transform_;
    setup.feature_type = type_;
    setup.dtype = DType::kF32;
    return setup;
  }

  // The options of the fused trainer alone, to compare with it.
  void KeepToTheFusedTrainer() { fused_ = true; }

  // As models begin: near zero. The norms' scales are what they are, running variances positive.
  FlatVector Vector(double scale) {
    FlatVector vector(spec_.layout);
    for (const LayoutEntry& entry : spec_.layout->entries()) {
      for (float& value : vector.As<float>().subspan(entry.offset, entry.size)) {
        value = static_cast<float>(scale * stream_.Normal());
        if (entry.group == Group::kBuffer) value = 0.5f + std::abs(value);
      }
    }
    return vector;
  }

  // Rows of a client, which this object keeps.
  data::Rows Rows(size_t count) {
    size_t elements = 1;
    for (const int64_t extent : spec_.input_shape) elements *= static_cast<size_t>(extent);
    Stored& stored = *stored_.emplace_back(std::make_unique<Stored>());
    data::Rows rows;
    rows.block.type = type_;
    rows.block.row_bytes = elements * data::SizeOf(type_);
    stored.bytes.resize(std::max<size_t>(count, 1) * rows.block.row_bytes);
    for (size_t i = 0; i < count * elements; ++i) {
      if (type_ == data::FeatureType::kI32) {
        const auto tokens = std::get<models::Embedding>(spec_.layers[0]).tokens;
        const auto token = static_cast<int32_t>(Below(static_cast<uint64_t>(tokens)));
        std::memcpy(&stored.bytes[i * sizeof(token)], &token, sizeof(token));
      } else if (type_ == data::FeatureType::kU8) {
        stored.bytes[i] = static_cast<std::byte>(Below(256));
      } else {
        const auto value = static_cast<float>(stream_.Normal());
        std::memcpy(&stored.bytes[i * sizeof(value)], &value, sizeof(value));
      }
    }
    const int64_t classes = task_ == TaskKind::kBinary ? 2 : outputs_;
    for (size_t i = 0; i < count; ++i) {
      stored.classes.push_back(static_cast<int32_t>(Below(static_cast<uint64_t>(classes))));
      stored.targets.push_back(static_cast<float>(stream_.Normal()));
    }
    rows.block.features = stored.bytes.data();
    rows.block.count = count;
    // Some clients have sequences of several lengths, and some of these are empty.
    if (spec_.takes_sequences() && Below(3) > 0) {
      const auto positions = static_cast<uint64_t>(spec_.input_shape[0]);
      for (size_t i = 0; i < count; ++i)
        stored.lengths.push_back(static_cast<int32_t>(Below(positions + 1)));
      rows.block.lengths = stored.lengths.data();
    }
    if (task_ == TaskKind::kRegression) {
      rows.block.targets = stored.targets.data();
    } else {
      rows.block.classes = stored.classes.data();
    }
    if (type_ != data::FeatureType::kI32)
      rows.noise = {.seed = 7, .client = ClientId(Below(4)), .clients = Below(4) == 0 ? 0u : 4u};
    // Some clients have rows here and there.
    if (count > 2 && Below(2) == 0) {
      for (uint32_t i = 0; i < count; ++i) stored.index.push_back((i * 7 + 3) % count);
      if (count % 7 == 0) stored.index.resize(count - 1);
      rows.index = stored.index;
    }
    return rows;
  }

  LocalConfig Local() {
    LocalConfig local;
    local.batch_size = std::array{0u, 1u, 5u, 10u, 33u}[Below(5)];
    local.epochs = 1 + static_cast<uint32_t>(Below(2));
    if (Below(3) == 0) local.steps = 1 + static_cast<uint32_t>(Below(5));
    // Small enough that nothing diverges, where rounding errors grow.
    local.lr = task_ == TaskKind::kRegression ? 0.002 : 0.02;
    if (Below(2) == 0) local.momentum = 0.7;
    local.nesterov = Below(2) == 0;
    if (Below(3) == 0) local.weight_decay = 0.05;
    if (Below(3) == 0) local.clip_norm = 0.3;
    if (!fused_ && Below(2) == 0) DrawAdam(local);
    if (!fused_ && Below(2) == 0) local.clip = "corrected";
    local.drop_last = Below(4) == 0;
    local.shuffle = Below(4) != 0;
    if (task_ != TaskKind::kRegression) {
      if (Below(3) == 0) local.label_smoothing = 0.2;
      const size_t classes = task_ == TaskKind::kBinary ? 2 : static_cast<size_t>(spec_.outputs);
      if (task_ != TaskKind::kNextToken && Below(3) == 0) {
        for (size_t i = 0; i < classes; ++i) local.class_weights.push_back(0.5 + 0.3 * (i % 5));
      }
    }
    return local;
  }

  // A stage of any kind, mostly training.
  Stage AnyStage(const Point& start, const std::vector<Point>& points, const data::Rows& rows) {
    Stage stage;
    stage.start = start;
    stage.local = Local();
    // A batch that cannot be made is an error, which another test is about.
    if (rows.size() < std::max(1u, stage.local.batch_size)) {
      stage.local.steps = 0;
    }
    const uint64_t kind = Below(6);
    stage.kind = kind == 0   ? StageKind::kLoss
                 : kind == 1 ? StageKind::kGradient
                             : StageKind::kTrain;
    const auto point = [&] { return points[Below(points.size())]; };
    if (Below(3) == 0) stage.correction.mu = 0.3;
    if (Below(2) == 0) stage.correction.anchor = point();
    for (uint64_t terms = Below(2) * Below(3); terms > 0; --terms) {
      stage.correction.v.push_back({point(), Below(2) == 0 ? 1.0 : -0.5});
    }
    if (Below(4) == 0) {
      std::vector<bool> trainable(spec_.layout->entries().size());
      for (size_t i = 0; i < trainable.size(); ++i) trainable[i] = Below(2) == 0;
      trainable[Below(trainable.size())] = true;
      stage.trainable = std::make_shared<const std::vector<bool>>(std::move(trainable));
    }
    return stage;
  }

  const models::ModelSpec& spec() const { return spec_; }
  bool HasDropout() const {
    return std::ranges::any_of(spec_.layers, [](const models::Layer& layer) {
      return std::holds_alternative<models::Dropout>(layer);
    });
  }
  uint64_t Below(uint64_t bound) { return stream_.Below(bound); }

 private:
  struct Stored {
    std::vector<std::byte> bytes;
    std::vector<int32_t> classes;
    std::vector<float> targets;
    std::vector<int32_t> lengths;
    std::vector<uint32_t> index;
  };

  void DrawModel() {
    ModelConfig config;
    config.name = "layers";
    config.classes = outputs_;
    const auto number = [&](uint64_t low, uint64_t high) {
      return std::to_string(low + Below(high - low + 1));
    };
    const auto function = [&]() -> std::string {
      return std::array{"relu", "tanh", "sigmoid"}[Below(3)];
    };
    auto& layers = config.layers;
    if (Below(3) == 0) {
      config.input_shape = {3 + static_cast<int64_t>(Below(30))};
      for (uint64_t hidden = Below(3); hidden > 0; --hidden) {
        layers.push_back("linear " + number(3, 40) + (Below(4) == 0 ? " nobias" : ""));
        layers.push_back(function());
        if (Below(3) == 0) layers.push_back("dropout 0.3");
      }
    } else {
      config.input_shape = {1 + static_cast<int64_t>(Below(3)), 10 + static_cast<int64_t>(Below(4)),
                            10 + static_cast<int64_t>(Below(4))};
      if (Below(6) == 0) layers.push_back("avgpool 2 stride 1");
      layers.push_back("conv " + number(2, 9) + " " + number(1, 3) +
                       (Below(2) == 0 ? " pad 1" : "") + (Below(4) == 0 ? " stride 2" : "") +
                       (Below(4) == 0 ? " nobias" : ""));
      if (Below(2) == 0) layers.push_back(function());
      if (Below(3) == 0) layers.push_back("dropout 0.3");
      if (Below(2) == 0) {
        layers.push_back(Below(2) == 0 ? "maxpool 2" : "maxpool 3 stride 1");
      }
      if (Below(2) == 0) {
        layers.push_back("conv " + number(2, 6) + " 2");
        layers.push_back("relu");
      }
      if (Below(4) == 0) layers.push_back("globalavgpool");
      layers.push_back("flatten");
    }
    layers.push_back("linear " + std::to_string(outputs_));
    absl::StatusOr<models::ModelSpec> spec = models::BuildSpec(config, DType::kF32);
    EXPECT_TRUE(spec.ok()) << spec.status();
    spec_ = *std::move(spec);
  }

  // ε is so large that a step does not multiply the rounding errors of its gradient.
  void DrawAdam(LocalConfig& local) {
    local.optimizer = Below(2) == 0 ? "adam" : "adamw";
    local.momentum = 0;
    local.nesterov = false;
    local.beta1 = std::array{0.9, 0.6, 0.2}[Below(3)];
    local.beta2 = std::array{0.999, 0.8, 0.0}[Below(3)];
    local.epsilon = std::array{0.1, 0.5}[Below(2)];
  }

  void DrawTransform() {
    const bool image = spec_.input_shape.size() == 3;
    if (Below(2) == 0) {
      type_ = data::FeatureType::kU8;
      transform_.scale = 1.0 / 255;
      transform_.mean = {0.4};
      transform_.std = {0.3};
    }
    if (Below(3) == 0) {
      transform_.mean.clear();
      transform_.std.clear();
      for (int64_t c = 0; c < spec_.input_shape[0]; ++c) {
        transform_.mean.push_back(0.1 * static_cast<double>(c % 4));
        transform_.std.push_back(0.5 + 0.1 * static_cast<double>(c % 3));
      }
    }
    if (image && Below(3) == 0) transform_.pad_crop = 1 + static_cast<int64_t>(Below(3));
    if (image && transform_.pad_crop > 0)
      transform_.pad_mode =
          std::array{PadMode::kZeros, PadMode::kReflect, PadMode::kEdge}[Below(3)];
    if (!data::CheckAugment(transform_, spec_.input_shape).ok())
      transform_.pad_mode = PadMode::kEdge;
    if (image && Below(3) == 0) transform_.flip = true;
    if (Below(4) == 0) transform_.client_noise = 0.4;
  }

  RandomStream stream_;
  TaskKind task_ = TaskKind::kClassification;
  bool fused_ = false;
  int64_t outputs_ = 1;
  models::ModelSpec spec_;
  TransformConfig transform_;
  data::FeatureType type_ = data::FeatureType::kF32;
  std::vector<std::unique_ptr<Stored>> stored_;
};

}  // namespace macaw::training
