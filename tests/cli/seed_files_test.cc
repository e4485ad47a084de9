// The files of first weights that {seed} in model.init names: all are looked for before a sweep,
// and a sweep goes on with the same ones alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/sweep/folder.h"
#include "core/safetensors.h"
#include "models/spec.h"
#include "tests/cli/sweep_plan_fixture.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SeedFilesTest : public SweepPlanTest {
 protected:
  // Writes w-SEED.safetensors: weights of the base's model, drawn with another seed.
  void WriteWeights(uint64_t seed, uint64_t drawn_with) const {
    const sdk::Catalogue catalogue = sdk::Catalogue::Builtins();
    const absl::StatusOr<Document> base = OpenDocument(folder_ / "run.toml");
    ASSERT_TRUE(base.ok()) << base.status();
    absl::StatusOr<Config> config = ReadConfig(*base, {}, catalogue);
    ASSERT_TRUE(config.ok()) << config.status();
    const auto dataset = catalogue.OpenDataset(config->node.data, config->node.partition);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    const absl::Status resolved = Resolve(*config, **dataset, catalogue);
    ASSERT_TRUE(resolved.ok()) << resolved;
    const absl::StatusOr<models::ModelSpec> spec = SpecOf(*config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const FlatVector weights = models::InitialModel(*spec, drawn_with);
    const std::string path = folder_ / absl::StrCat("w-", seed, ".safetensors");
    ASSERT_TRUE(WriteModel(path, weights.view(), {}).ok());
  }

  static std::string With(const std::string& seeds) {
    return absl::StrCat("seeds = [", seeds,
                        "]\n[keys]\nlocal.lr = [0.1, 0.2]\n"
                        "model.init = [\"w-{seed}.safetensors\"]\n");
  }
};

TEST_F(SeedFilesTest, AFolderTakesNoOtherWeightsUnderTheNameOfASeed) {
  WriteWeights(1, 1);
  WriteWeights(2, 2);
  const SweepFolder folder(folder_ / "out");
  const auto write = [&](const std::string& seeds) { return folder.Write(Sweep(With(seeds))); };
  ASSERT_TRUE(write("1, 2").ok()) << write("1, 2");
  EXPECT_TRUE(write("1, 2").ok()) << write("1, 2");
  WriteWeights(2, 7);
  EXPECT_THAT(std::string(write("1, 2").message()),
              AllOf(HasSubstr("model.init of seed 2"), HasSubstr("has changed")));
  // A command without a seed does not forget which weights its runs had.
  EXPECT_TRUE(write("1").ok()) << write("1");
  EXPECT_THAT(std::string(write("1, 2").message()), HasSubstr("model.init of seed 2"));
  WriteWeights(2, 2);
  WriteWeights(3, 3);
  EXPECT_TRUE(write("1, 2, 3").ok()) << write("1, 2, 3");
}

TEST_F(SeedFilesTest, TheFileOfEachSeedIsReadBeforeTheFirstRun) {
  WriteWeights(1, 1);
  const std::string text = "base = \"run.toml\"\n" + With("1, 3");
  EXPECT_THAT(Refused(text, "model.init"),
              AllOf(HasSubstr("model.init of seed 3"), HasSubstr("w-3.safetensors")));
  folder_.Write("w-3.safetensors", "no tensors");
  EXPECT_THAT(Refused(text, "model.init"),
              AllOf(HasSubstr("model.init of seed 3"), HasSubstr("is not a safetensors file")));
  WriteWeights(3, 3);
  EXPECT_TRUE(Read(text).ok()) << Read(text).status();
}

}  // namespace
}  // namespace macaw::cli
