#include "cli/diff/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/diff/trace.h"
#include "core/half.h"
#include "tests/cli/run_files.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::TemporaryFolder;
using Stage = Parting::Stage;

template <typename T>
TensorRef Tensor(const char* dtype, const std::vector<T>& values) {
  return {.dtype = dtype, .shape = {values.size()}, .bytes = BytesOf(std::span(values))};
}

DiffReport Compared(const std::string& a, const std::string& b, DiffOptions options = {},
                    const Renames& renames = {}) {
  const auto first = ReadTrace(a, {}), second = ReadTrace(b, renames);
  EXPECT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  if (!first.ok() || !second.ok()) return {};
  auto report = Diff(*first, *second, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : DiffReport();
}

TEST(Tensors, CountsValuesAndTheNumbersBetweenThem) {
  const std::vector<float> a = {1, 2, 3, -1},
                           b = {1, std::nextafter(2.0F, 3.0F), 3, std::nextafter(-1.0F, 0.0F)};
  const auto all =
      CompareTensors({{"w", Tensor("F32", a)}}, {{"w", Tensor("F32", b)}}, /*tolerance=*/1e-6);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].values, 4u);
  EXPECT_EQ(all[0].differing, 2u);
  EXPECT_EQ(all[0].beyond, 0u);
  EXPECT_EQ(all[0].ulps, 1u);
  EXPECT_DOUBLE_EQ(all[0].largest, 0x1p-22);
}

TEST(Tensors, CountsAcrossZeroAndTellsTheZerosApartByTheirBits) {
  const float least = std::numeric_limits<float>::denorm_min();
  const std::vector<float> a = {-least, 0.0F}, b = {least, -0.0F};
  const auto all = CompareTensors({{"w", Tensor("F32", a)}}, {{"w", Tensor("F32", b)}}, 0);
  EXPECT_EQ(all[0].differing, 2u);
  EXPECT_EQ(all[0].beyond, 1u) << "zeros are equal";
  EXPECT_EQ(all[0].ulps, 2u);
}

TEST(Tensors, ComparesValuesOfOtherDtypesInTheNarrowerOne) {
  const std::vector<double> wide = {1.0, 0.1, 5};
  const std::vector<float> narrow = {1.0F, 0.1F, 5};
  const auto all = CompareTensors({{"w", Tensor("F64", wide)}}, {{"w", Tensor("F32", narrow)}}, 0);
  EXPECT_EQ(all[0].differing, 1u);
  EXPECT_EQ(all[0].ulps, 0u) << "0.1 rounds to the same float";
  const std::vector<uint16_t> half = {ToHalf(1.0F), ToHalf(0.5F)}, brain = {0x3f80, 0x3f00};
  EXPECT_FALSE(
      CompareTensors({{"w", Tensor("F16", half)}}, {{"w", Tensor("BF16", brain)}}, 0)[0].differs());
}

TEST(Tensors, NamesWhatIsMissingOrOfAnotherShape) {
  const std::vector<float> two = {1, 2}, three = {1, 2, 3};
  const auto all = CompareTensors({{"a", Tensor("F32", two)}, {"b", Tensor("F32", two)}},
                                  {{"b", Tensor("F32", three)}, {"c", Tensor("F32", two)}}, 1);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_THAT(all[0].why, HasSubstr("only the first"));
  EXPECT_THAT(all[1].why, HasSubstr("[2] and [3]"));
  EXPECT_THAT(all[2].why, HasSubstr("only the second"));
  for (const TensorDifference& one : all) EXPECT_TRUE(one.differs() && one.is_beyond());
}

TEST(Tensors, KeepsWhatIsNotFiniteOutOfTheLargestDifference) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> a = {nan, 1, infinity, 2}, b = {nan, nan, infinity, 2.5F};
  const auto all = CompareTensors({{"w", Tensor("F32", a)}}, {{"w", Tensor("F32", b)}}, 0.5);
  EXPECT_EQ(all[0].differing, 2u);
  EXPECT_EQ(all[0].not_finite, 1u);
  EXPECT_EQ(all[0].beyond, 1u);
  EXPECT_DOUBLE_EQ(all[0].largest, 0.5);
}

TEST(Diff, OfEqualRunsIsTheSame) {
  const TemporaryFolder folder;
  HandRun elsewhere;
  elsewhere.config = absl::StrCat(elsewhere.config, "workers = 3\n");
  const DiffReport report =
      Compared(WriteHandRun(folder, "a"), WriteHandRun(folder, "b", elsewhere));
  EXPECT_TRUE(report.same()) << DiffText(report);
  EXPECT_EQ(report.rounds, 2u);
  EXPECT_EQ(report.columns, 2u);
  EXPECT_EQ(report.models.size(), 1u);
  EXPECT_THAT(report.settings, IsEmpty());
  ASSERT_EQ(report.elsewhere.size(), 1u);
  EXPECT_EQ(report.elsewhere[0].name, "server.workers");
  EXPECT_THAT(DiffText(report), HasSubstr("same       2 rounds"));
}

TEST(Diff, NamesTheRoundBeforeTheOneThatSendsAnotherModel) {
  const TemporaryFolder folder;
  HandRun other;
  other.broadcasts[1] = "another";
  const DiffReport report = Compared(WriteHandRun(folder, "a"), WriteHandRun(folder, "b", other));
  ASSERT_TRUE(report.parting.has_value());
  EXPECT_EQ(report.parting->round, 1u);
  EXPECT_EQ(report.parting->stage, Stage::kModel);
  EXPECT_THAT(report.parting->among, IsEmpty());
  EXPECT_THAT(report.unknown, testing::Contains(HasSubstr("--rounds 1")));
}

TEST(Diff, NamesTheTrainingWhereUpdatesDifferUnderTheSameLosses) {
  const TemporaryFolder folder;
  HandRun other;
  other.broadcasts[1] = "another";
  other.sums[0][1] = "t1 otherwise";
  const DiffReport report = Compared(WriteHandRun(folder, "a"), WriteHandRun(folder, "b", other));
  ASSERT_TRUE(report.parting.has_value());
  EXPECT_EQ(report.parting->round, 1u);
  EXPECT_EQ(report.parting->stage, Stage::kTraining);
  EXPECT_THAT(report.parting->what, HasSubstr("updates differ"));
  EXPECT_THAT(report.parting->among, ElementsAre(2)) << "sums of client 2 alone differ";
  EXPECT_THAT(DiffText(report), HasSubstr("that of client 2 alone differs"));
  EXPECT_THAT(report.unknown, testing::Contains(HasSubstr("--rounds 1")));
}

TEST(Diff, NamesTheFirstOfTheRoundsThatDiffer) {
  const TemporaryFolder folder;
  HandRun other;
  other.rows = {R"({"round":1,"clients":2,"train_loss":0.75})",
                R"({"round":2,"clients":2,"train_loss":0.375})"};
  const DiffReport report = Compared(WriteHandRun(folder, "a"), WriteHandRun(folder, "b", other));
  ASSERT_TRUE(report.parting.has_value());
  EXPECT_EQ(report.parting->round, 1u);
  ASSERT_EQ(report.parting->columns.size(), 1u);
  EXPECT_EQ(report.parting->columns[0].second, 0.75);
}

TEST(Diff, SaysThatTheFirstModelIsAnother) {
  const TemporaryFolder folder;
  HandRun other;
  other.broadcasts[0] = "another";
  const DiffReport report = Compared(WriteHandRun(folder, "a"), WriteHandRun(folder, "b", other));
  ASSERT_TRUE(report.parting.has_value());
  EXPECT_EQ(report.parting->round, 1u);
  EXPECT_EQ(report.parting->stage, Stage::kStart);
}

TEST(Diff, NamesClientsThatOneRunAloneHasDrawn) {
  const TemporaryFolder folder;
  HandRun other;
  other.cohorts[1] = {0, 1, 5};
  const DiffReport report = Compared(WriteHandRun(folder, "a"), WriteHandRun(folder, "b", other));
  ASSERT_TRUE(report.parting.has_value());
  EXPECT_EQ(report.parting->round, 2u);
  EXPECT_EQ(report.parting->stage, Stage::kDraw);
  EXPECT_THAT(report.parting->what, HasSubstr("only the first has client 2"));
  EXPECT_THAT(report.parting->what, HasSubstr("only the second has client 5"));
}

TEST(Diff, NamesTheClientWhoseRecordDiffersAndTheSettings) {
  const TemporaryFolder folder;
  HandRun run, other;
  run.clients = {R"({"round":1,"client":0,"loss":1.0})", R"({"round":2,"client":0,"loss":0.5})",
                 R"({"round":2,"client":1,"loss":0.5})"};
  other.clients = run.clients;
  other.clients[2] = R"({"round":2,"client":1,"loss":0.75})";
  other.rows[1] = R"({"round":2,"clients":2,"train_loss":0.375})";
  other.model[1] = 2.5;
  other.config = absl::StrCat(other.config, "[cohort]\nsize = 3\n");
  const DiffReport report =
      Compared(WriteHandRun(folder, "a", run), WriteHandRun(folder, "b", other));
  ASSERT_TRUE(report.parting.has_value());
  EXPECT_EQ(report.parting->round, 2u);
  EXPECT_EQ(report.parting->stage, Stage::kTraining);
  ASSERT_EQ(report.parting->clients.size(), 1u);
  EXPECT_EQ(report.parting->clients[0].client, 1u);
  EXPECT_EQ(report.parting->clients[0].values[0].name, "loss");
  EXPECT_EQ(report.parting->columns[0].second, 0.375);
  ASSERT_EQ(report.settings.size(), 1u);
  EXPECT_EQ(report.settings[0].name, "cohort.size");
  EXPECT_EQ(report.models.back().tensors[0].differing, 1u);
  const auto json = nlohmann::json::parse(DiffJson(report));
  EXPECT_EQ(json["parting"]["clients"][0]["client"], 1);
  EXPECT_EQ(json["same"], false);
}

TEST(Diff, SaysWhichKeyWouldTellTheClient) {
  const TemporaryFolder folder;
  HandRun other;
  other.rows[0] = R"({"round":1,"clients":2,"train_loss":0.75})";
  const DiffReport report = Compared(WriteHandRun(folder, "a"), WriteHandRun(folder, "b", other));
  EXPECT_THAT(report.unknown, testing::Contains(HasSubstr("run.client_records = true")));
}

TEST(Diff, FindsWhereTrainingPartsBehindAColumnThatOneRunLacks) {
  const TemporaryFolder folder;
  HandRun run, other;
  run.rows[0] = R"({"round":1,"clients":2,"train_loss":0.5,"test_loss":1})";
  const std::string a = WriteHandRun(folder, "a", run);
  const DiffReport lacking = Compared(a, WriteHandRun(folder, "b", other));
  EXPECT_EQ(lacking.parting->round, 1u);
  EXPECT_EQ(lacking.parting->columns[0].name, "test_loss");
  other.rows[1] = R"({"round":2,"clients":2,"train_loss":0.3})";
  EXPECT_EQ(Compared(a, WriteHandRun(folder, "c", other)).parting->round, 2u);
}

// [devices] adds columns, and moves no model.
TEST(Diff, TakesACountThatOneRunLacksForNoOtherTraining) {
  const TemporaryFolder folder;
  HandRun timed;
  for (std::string& row : timed.rows)
    row = absl::StrCat(row.substr(0, row.size() - 1), R"(,"late":0,"virtual_seconds":2.5})");
  const std::string a = WriteHandRun(folder, "a"), b = WriteHandRun(folder, "b", timed);
  const DiffReport lacking = Compared(a, b);
  ASSERT_TRUE(lacking.parting.has_value());
  EXPECT_EQ(lacking.parting->stage, Stage::kMetrics);
  EXPECT_EQ(lacking.parting->columns.size(), 2u);
  timed.rows[0] = R"({"round":1,"clients":2,"train_loss":0.5,"late":1,"virtual_seconds":2.5})";
  const DiffReport both = Compared(b, WriteHandRun(folder, "c", timed));
  EXPECT_EQ(both.parting->stage, Stage::kTraining);
}

TEST(Diff, NamesWhichClientsARoundWaitsForAmongWhatDecides) {
  const TemporaryFolder folder;
  HandRun other;
  const std::string a = WriteHandRun(folder, "a");
  other.config = absl::StrCat(other.config, "workers = 3\n[round]\nenough = 3\n");
  const DiffReport report = Compared(a, WriteHandRun(folder, "b", other));
  ASSERT_EQ(report.settings.size(), 1u);
  EXPECT_EQ(report.settings[0].name, "round.enough");
  ASSERT_EQ(report.elsewhere.size(), 1u);
  EXPECT_EQ(report.elsewhere[0].name, "server.workers");
}

HandRun ThreeRounds() {
  HandRun run;
  run.rows.emplace_back(R"({"round":3,"clients":2,"train_loss":0.25})");
  run.broadcasts.emplace_back("third");
  run.sums.push_back({"s3", "t3"});
  run.cohorts.push_back({0, 1, 2});
  return run;
}

TEST(Diff, TakesARunThatGotMoreRoundsForOneThatIsNotOver) {
  const TemporaryFolder folder;
  HandRun longer = ThreeRounds();
  longer.model = {1, 2, 4};
  const std::string a = WriteHandRun(folder, "a", longer);
  const std::string b = WriteHandRun(folder, "b", longer);
  const std::string of_two = *ReadFile(WriteHandRun(folder, "c") + "/summary.json");
  folder.Write("b/summary.json", of_two);
  const DiffReport report = Compared(a, b);
  EXPECT_EQ(report.first_is, "finished, 3 rounds");
  EXPECT_EQ(report.second_is, "not over, 3 rounds");
}

TEST(Diff, ComparesARunThatIsNotOverAsFarAsItIs) {
  const TemporaryFolder folder;
  HandRun open;
  open.end = "";
  open.rows.pop_back();
  open.broadcasts.pop_back();
  const DiffReport report = Compared(WriteHandRun(folder, "a"), WriteHandRun(folder, "b", open));
  ASSERT_TRUE(report.parting.has_value());
  EXPECT_EQ(report.parting->stage, Stage::kEnd);
  EXPECT_EQ(report.parting->round, 2u);
  EXPECT_EQ(report.second_is, "not over, 1 round");
}

TEST(Diff, SaysWhichRowsAreLost) {
  const TemporaryFolder folder;
  HandRun run = ThreeRounds();
  const std::string a = WriteHandRun(folder, "a", run), b = WriteHandRun(folder, "b", run);
  ASSERT_TRUE(Compared(a, b).same());
  folder.Write("b/metrics.jsonl", run.rows[0] + "\n");
  const DiffReport cut = Compared(a, b);
  ASSERT_TRUE(cut.parting.has_value());
  EXPECT_EQ(cut.parting->stage, Stage::kRows);
  EXPECT_EQ(cut.parting->round, 2u);
  EXPECT_THAT(cut.parting->what, HasSubstr("the second has no row of rounds 2 to 3"));
  EXPECT_FALSE(Compared(a, b, {.tolerance = 1}).same());
  folder.Write("b/metrics.jsonl", "");
  EXPECT_THAT(Compared(a, b).parting->what, HasSubstr("no row of rounds 1 to 3"));
  // Beside another difference they are a note.
  run.broadcasts[1] = "another";
  WriteHandRun(folder, "b", run);
  folder.Write("b/metrics.jsonl", run.rows[0] + "\n");
  EXPECT_THAT(Compared(a, b).notes, testing::Contains(HasSubstr("no row of rounds 2 to 3")));
}

TEST(Diff, AllowsThatARunWhichWasCutLacksItsLastRow) {
  const TemporaryFolder folder;
  HandRun cut;
  cut.end = "interrupted";
  const std::string a = WriteHandRun(folder, "a"), b = WriteHandRun(folder, "b", cut);
  folder.Write("b/metrics.jsonl", cut.rows[0] + "\n");
  EXPECT_TRUE(Compared(a, b).same());
  folder.Write("b/metrics.jsonl", cut.rows[1] + "\n");
  EXPECT_THAT(Compared(a, b).parting->what, HasSubstr("no row of round 1"));
}

TEST(Diff, HoldsUnderAToleranceAndSaysWhereTheBitsPart) {
  const TemporaryFolder folder;
  HandRun other;
  other.rows[1] = R"({"round":2,"clients":2,"train_loss":0.2501})";
  other.broadcasts[1] = "other bits";
  other.model[0] = 1.00001F;
  const std::string a = WriteHandRun(folder, "a"), b = WriteHandRun(folder, "b", other);
  const DiffReport within = Compared(a, b, {.tolerance = 1e-3});
  EXPECT_TRUE(within.same()) << DiffText(within);
  EXPECT_EQ(within.parting->round, 1u);
  EXPECT_FALSE(Compared(a, b, {.tolerance = 1e-5}).same());
  // Tensors that are not judged decide nothing, and counts are exact.
  other.model[0] = 9;
  const std::string c = WriteHandRun(folder, "c", other);
  EXPECT_FALSE(Compared(a, c, {.tolerance = 1e-3}).same());
  EXPECT_TRUE(Compared(a, c, {.tolerance = 1e-3, .judge_tensors = false}).same());
  other.rows[0] = R"({"round":1,"clients":3,"train_loss":0.5})";
  EXPECT_FALSE(Compared(a, WriteHandRun(folder, "d", other), {.tolerance = 1}).same());
}

TEST(Diff, ComparesDigestsUnderAToleranceWhereTheModelsAreTheSame) {
  const TemporaryFolder folder;
  HandRun other;
  other.rows[1] = R"({"round":2,"clients":2,"train_loss":0.25000001})";
  const std::string a = WriteHandRun(folder, "a"), b = WriteHandRun(folder, "b", other);
  EXPECT_TRUE(Compared(a, b, {.tolerance = 1e-5, .digests = true}).same());
  EXPECT_FALSE(Compared(a, b).same());
  other.broadcasts[1] = "other bits";
  const std::string c = WriteHandRun(folder, "c", other);
  EXPECT_TRUE(Compared(a, c, {.tolerance = 1e-5}).same());
  EXPECT_FALSE(Compared(a, c, {.tolerance = 1e-5, .digests = true}).same());
}

TEST(Trace, OfAnotherSystemIsATableOrModelsOrBoth) {
  const TemporaryFolder folder;
  const std::string run = WriteHandRun(folder, "run");
  const std::string csv = folder.Write("port.csv", "server_round,loss,note\n1,0.5001,x\n2,0.25,\n");
  const Renames renames = {{"server_round", "round"}, {"loss", "train_loss"}};
  const DiffReport close = Compared(run, csv, {.tolerance = 1e-3}, renames);
  EXPECT_TRUE(close.same()) << DiffText(close);
  EXPECT_EQ(close.columns, 1u);
  const DiffReport bits = Compared(run, csv, {}, renames);
  EXPECT_EQ(bits.parting->round, 1u);
  EXPECT_EQ(bits.parting->stage, Stage::kMetrics);
  const std::string sheet =
      folder.Write("sheet.csv", "\xEF\xBB\xBFserver_round,loss,note\n1,0.5001,x\n2,0.25,\n");
  EXPECT_TRUE(Compared(run, sheet, {.tolerance = 1e-3}, renames).same()) << "a byte order mark";

  folder.Write("port/metrics.jsonl", "{\"round\": 1, \"train_loss\": 0.5}\n");
  const std::vector<float> model = {1, 2, 3.5F};
  ASSERT_TRUE(
      WriteSafetensors(
          folder / "port/model-02.safetensors",
          {{.name = "fc.weight", .dtype = "F32", .shape = {3}, .bytes = BytesOf(std::span(model))}},
          {})
          .ok());
  const DiffReport models = Compared(run, folder / "port", {}, {{"fc.weight", "0.weight"}});
  ASSERT_TRUE(models.parting.has_value());
  EXPECT_EQ(models.parting->round, 2u);
  EXPECT_EQ(models.parting->stage, Stage::kModel);
  EXPECT_EQ(models.models[0].tensors[0].differing, 1u);
}

TEST(CheckRenames, RefusesNamesThatAreNotThere) {
  const TemporaryFolder folder;
  const std::string run = WriteHandRun(folder, "run");
  const std::string table = folder.Write("port.csv", "round,loss,rate\n1,0.5,3\n2,0.25,3\n");
  const std::string other = folder.Write("other.csv", "round,loss\n1,0.5\n2,0.25\n");
  const auto check = [](const std::string& a, const std::string& b, const Renames& renames) {
    const bool run_first = FileExists(a + "/config.toml"),
               run_second = FileExists(b + "/config.toml");
    const auto first = ReadTrace(a, run_first ? Renames() : renames),
               second = ReadTrace(b, run_second ? Renames() : renames);
    EXPECT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    return std::string(CheckRenames(renames, *first, *second).message());
  };
  EXPECT_EQ(check(run, table, {}), "");
  EXPECT_EQ(check(run, table, {{"loss", "train_loss"}}), "");
  EXPECT_EQ(check(table, run, {{"loss", "train_loss"}}), "");
  EXPECT_EQ(check(run, table, {{"losss", "train_loss"}}),
            "--rename losss=train_loss: " + table +
                " has no \"losss\"; did you mean loss? There are loss, rate, round");
  EXPECT_THAT(check(run, table, {{"loss", "trainloss"}}),
              testing::AllOf(HasSubstr("--rename loss=trainloss: " + run + " has no"),
                             HasSubstr("did you mean train_loss?"), HasSubstr("clients")));
  EXPECT_THAT(check(run, table, {{"train_loss", "loss"}}), HasSubstr(table + " has no"))
      << "names of a run stay";
  EXPECT_THAT(check(run, run, {{"loss", "train_loss"}}), HasSubstr("both are runs"));
  EXPECT_THAT(check(table, other, {{"losss", "x"}}), HasSubstr("neither "));
  EXPECT_EQ(check(table, other, {{"loss", "x"}}), "") << "both get it";
  const std::string rows = folder.Write("port.jsonl", R"({"round":1,"loss":0.5,"rate":3})");
  EXPECT_THAT(check(other, rows, {{"rate", "loss"}}), HasSubstr(rows + " has \"loss\" already"));
}

TEST(Trace, IsRefusedWithItsFileAndLine) {
  const TemporaryFolder folder;
  const auto why = [&](const std::string& name, const std::string& text) {
    return std::string(ReadTrace(folder.Write(name, text), {}).status().message());
  };
  EXPECT_THAT(why("a.csv", "epoch,loss\n1,0.5\n"), HasSubstr("a.csv:2: no number in the column"));
  EXPECT_THAT(why("b.csv", "round,loss\n1,0.5\n1,0.4\n"), HasSubstr("b.csv:3: round 1 was before"));
  EXPECT_THAT(why("c.csv", "round,loss\n1\n"), HasSubstr("c.csv:2 has 1 cells"));
  EXPECT_THAT(why("d.csv", "round,round\n1,1\n"), HasSubstr("names a column twice"));
  EXPECT_THAT(why("e.jsonl", "{\"round\":1}\n[]\n"), HasSubstr("e.jsonl:2 is not a JSON object"));
  EXPECT_THAT(why("f.jsonl", "{\"round\":-1}\n"), HasSubstr("f.jsonl:1"));
  EXPECT_THAT(why("g.txt", "x"), HasSubstr("neither the folder of a run nor a trace"));
  folder.Write("h/model.safetensors", "x");
  EXPECT_THAT(ReadTrace(folder / "h", {}).status().message(), HasSubstr("ends with its round"));
  folder.Write("i/note.txt", "x");
  EXPECT_THAT(ReadTrace(folder / "i", {}).status().message(), HasSubstr("has no rounds"));
  EXPECT_THAT(ReadTrace(folder / "j", {}).status().message(), HasSubstr("cannot open"));
  // Nothing in common.
  const auto a = ReadTrace(folder.Write("k.csv", "round,x\n1,1\n"), {});
  const auto b = ReadTrace(folder.Write("l.csv", "round,y\n1,1\n"), {});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_THAT(Diff(*a, *b, {}).status().message(), HasSubstr("no column in common"));
}

TEST(Trace, OfARunMayEndInsideARow) {
  const TemporaryFolder folder;
  HandRun open;
  open.end = "";
  const std::string path = WriteHandRun(folder, "a", open);
  folder.Write("a/metrics.jsonl", "{\"round\":1,\"train_loss\":0.5}\n{\"round\":2,\"tr");
  const auto trace = ReadTrace(path, {});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->rows.size(), 1u);
}

}  // namespace
}  // namespace macaw::cli
