#include "worker/whole_models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace macaw::worker {
namespace {

class WholeModelsTest : public testing::Test {
 protected:
  WholeModelsTest() {
    FlatVector base(parts_->base.layout());
    std::ranges::fill(base.As<float>(), 7.0f);
    models_.TakeBase(DigestOf("base"), base.view());
  }
  // The model whose trained tensors are all `value`.
  HeldModel Of(float value) {
    FlatVector trained(parts_->trained.layout());
    std::ranges::fill(trained.As<float>(), value);
    return models_.Of({.whole = DigestOf(std::to_string(value)), .vector = trained.view()});
  }
  // The base's number, and the trained one.
  static std::pair<float, float> Numbers(const HeldModel& model) {
    const LayoutEntry* base = model.view.layout->Find("base");
    const LayoutEntry* head = model.view.layout->Find("head");
    return {model.view.As<float>()[base->offset + 2], model.view.As<float>()[head->offset]};
  }

  const LayoutPtr layout_ = *ParameterLayout::Make(
      {{.name = "base", .shape = {40}}, {.name = "head", .shape = {3}}}, DType::kF32);
  const std::shared_ptr<const algorithms::ModelParts> parts_ =
      std::make_shared<const algorithms::ModelParts>(
          layout_, algorithms::ParameterGroup::Matching(layout_, "base"));
  WholeModels models_{parts_};
};

TEST_F(WholeModelsTest, GivesOneModelToAllWhoTrainFromIt) {
  EXPECT_EQ(models_.base(), DigestOf("base"));
  const HeldModel one = Of(1), same = Of(1);
  EXPECT_EQ(one.view.bytes.data(), same.view.bytes.data());
  EXPECT_EQ(Numbers(one), std::pair(7.0f, 1.0f));
}

TEST_F(WholeModelsTest, WritesTheNextModelOverOneThatNobodyUses) {
  const std::byte* place = nullptr;
  for (float value = 1; value < 5; ++value) {
    const HeldModel model = Of(value);
    if (place == nullptr) place = model.view.bytes.data();
    EXPECT_EQ(model.view.bytes.data(), place);
    EXPECT_EQ(Numbers(model), std::pair(7.0f, value));
  }
}

TEST_F(WholeModelsTest, LeavesAModelThatIsUsedAsItIs) {
  const HeldModel old = Of(1);
  std::vector<HeldModel> newer;
  for (float value = 2; value < 5; ++value) newer.push_back(Of(value));
  EXPECT_EQ(Numbers(old), std::pair(7.0f, 1.0f));
  for (size_t i = 0; i < newer.size(); ++i)
    EXPECT_EQ(Numbers(newer[i]), std::pair(7.0f, static_cast<float>(i + 2)));
}

TEST_F(WholeModelsTest, TakesAnotherBase) {
  FlatVector base(parts_->base.layout());
  std::ranges::fill(base.As<float>(), 8.0f);
  models_.TakeBase(DigestOf("another"), base.view());
  EXPECT_EQ(models_.base(), DigestOf("another"));
  EXPECT_EQ(Numbers(Of(1)), std::pair(8.0f, 1.0f));
}

TEST_F(WholeModelsTest, ServesSeveralThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 500; ++i) {
        const auto value = static_cast<float>((i + t) % 3);
        EXPECT_EQ(Numbers(Of(value)), std::pair(7.0f, value));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace macaw::worker
