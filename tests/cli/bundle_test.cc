#include "cli/bundle/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "cli/bundle/portable.h"
#include "cli/config/inputs.h"
#include "core/files.h"
#include "core/sha256.h"
#include "data/zip_writer.h"
#include "tests/cli/run_files.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::TemporaryFolder;

using Files = std::map<std::string, std::string>;

class Bundles : public ::testing::Test {
 protected:
  PackedBundle Pack(BundleOptions options = {}) {
    if (options.run.empty()) options.run = WriteHandRun(folder_, "run");
    if (options.out.empty()) options.out = folder_ / "x.zip";
    options.version = "9.9.9";
    auto packed = PackBundle(options);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return packed.ok() ? *std::move(packed) : PackedBundle();
  }

  // A whole bundle's files, by name.
  Files Whole() {
    const PackedBundle packed = Pack();
    const auto bundle = Bundle::Open(packed.path);
    EXPECT_TRUE(bundle.ok()) << bundle.status();
    return bundle.ok() ? bundle->files() : Files();
  }

  // An archive of these files in this order.
  std::string Archive(const std::vector<std::pair<std::string, std::string>>& files) {
    std::vector<data::ZipEntry> entries;
    for (const auto& [name, bytes] : files)
      entries.push_back({.name = name, .bytes = BytesOf(absl::string_view(bytes))});
    EXPECT_TRUE(data::WriteStoredZip(folder_ / "made.zip", entries).ok());
    return *ReadFile(folder_ / "made.zip");
  }
  std::string Archive(const Files& files) {
    return Archive(std::vector<std::pair<std::string, std::string>>(files.begin(), files.end()));
  }

  // Why such bytes are refused; "": they are not. A reason has one line.
  static std::string Refusal(const std::string& bytes) {
    const auto bundle = Bundle::Parse(bytes, "b.zip");
    const std::string why(bundle.status().message());
    EXPECT_THAT(why, Not(HasSubstr("\n")));
    return why;
  }

  // Changes bundle.json as somebody would who recomputes it.
  static void Edit(Files& files, const std::function<void(nlohmann::ordered_json&)>& change) {
    auto manifest = nlohmann::ordered_json::parse(files.at(kManifestFile));
    change(manifest);
    files[kManifestFile] = manifest.dump();
  }

  const TemporaryFolder folder_;
};

TEST_F(Bundles, HaveTheSameBytesForTheSameFolder) {
  const std::string run = WriteHandRun(folder_, "run");
  const PackedBundle first = Pack({.run = run, .out = folder_ / "a.zip"});
  const PackedBundle second = Pack({.run = run, .out = folder_ / "b.zip"});
  EXPECT_EQ(*ReadFile(first.path), *ReadFile(second.path));
  EXPECT_EQ(first.sha256, Sha256Hex(BytesOf(absl::string_view(*ReadFile(first.path)))));
}

TEST_F(Bundles, SayWhatTheyHaveAndWhatNot) {
  const auto bundle = Bundle::Open(Pack().path);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  std::vector<std::string> names;
  for (const auto& [name, bytes] : bundle->files()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("bundle.json", "config.toml", "metrics.jsonl", "model.safetensors",
                                 "ro-crate-metadata.json", "rounds.log", "summary.json"));
  const Manifest& manifest = bundle->manifest();
  EXPECT_EQ(manifest.macaw, "9.9.9");
  EXPECT_EQ(manifest.program, "macaw-server 9.9.9");
  EXPECT_EQ(manifest.profile.instruction_set, "avx2");
  EXPECT_EQ(manifest.seeds.at("run.seed"), "7");
  EXPECT_EQ(manifest.data.path, "/data/rows.csv");
  EXPECT_EQ(manifest.data.digest, DigestOf(absl::string_view("rows")).Hex());
  EXPECT_FALSE(manifest.data.by_name);
  EXPECT_EQ(manifest.began, "2026-11-18T11:06:40Z");
  EXPECT_THAT(manifest.left_out, Contains(HasSubstr("The data, csv from /data/rows.csv")));
}

TEST_F(Bundles, NeedARoundUnlessTheRunAskedForNone) {
  HandRun cut;
  cut.rows = cut.broadcasts = {};
  cut.end = "interrupted";
  const std::string run = WriteHandRun(folder_, "cut", cut);
  const std::string refusal(
      PackBundle({.run = run, .out = folder_ / "cut.zip"}).status().message());
  EXPECT_THAT(refusal, AllOf(HasSubstr(run), HasSubstr("interrupted before its first round"),
                             HasSubstr("--resume")));
  EXPECT_FALSE(FileExists(folder_ / "cut.zip"));
  cut.end = "finished";  // run.rounds = 0
  Pack({.run = WriteHandRun(folder_, "evaluated", cut)});
}

TEST_F(Bundles, RefuseWeightsThatTheSummaryDoesNotName) {
  const std::string run = WriteHandRun(folder_, "run");
  const std::string path = run + "/model.safetensors", whole = *ReadFile(path);
  const auto refusal = [&] {
    const auto packed = PackBundle({.run = run, .out = folder_ / "x.zip"});
    EXPECT_TRUE(absl::IsInvalidArgument(packed.status())) << packed.status();
    return std::string(packed.status().message());
  };
  const std::vector<float> stated = {1, 2, 3};
  const std::string digest = DigestOf(BytesOf(std::span(stated))).Hex();
  folder_.Write("run/model.safetensors", whole.substr(0, whole.size() - 4));
  EXPECT_THAT(refusal(), AllOf(HasSubstr(path), HasSubstr(digest)));
  const std::vector<float> other = {1, 2, 4};
  std::string changed = whole;
  std::memcpy(changed.data() + changed.size() - 4, &other[2], 4);
  folder_.Write("run/model.safetensors", changed);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(path), HasSubstr(digest),
                               HasSubstr(DigestOf(BytesOf(std::span(other))).Hex())));
  Pack({.run = run, .model = false});
}

TEST_F(Bundles, TakeARunThatWasCutBeforeItsLastRow) {
  HandRun cut;
  cut.end = "interrupted";
  const std::string run = WriteHandRun(folder_, "run", cut);
  auto summary = nlohmann::json::parse(*ReadFile(run + "/summary.json"));
  summary["final_round"] = 1;
  folder_.Write("run/summary.json", summary.dump());
  folder_.Write("run/metrics.jsonl", cut.rows[0] + "\n");
  EXPECT_EQ(Pack({.run = run}).manifest.rounds, 2u);
}

TEST_F(Bundles, RefuseADamagedSummaryAsBadInput) {
  const std::string run = WriteHandRun(folder_, "run");
  folder_.Write("run/summary.json", "{\"name\": ");
  const auto packed = PackBundle({.run = run, .out = folder_ / "x.zip"});
  EXPECT_TRUE(absl::IsInvalidArgument(packed.status())) << packed.status();
}

TEST_F(Bundles, LeaveOutWhatIsAskedForAndClientsUnlessAsked) {
  HandRun clients;
  clients.clients = {R"({"round":1,"client":0,"loss":1.0})"};
  const std::string run = WriteHandRun(folder_, "run", clients);
  const auto bare =
      Bundle::Open(Pack({.run = run, .out = folder_ / "a.zip", .model = false, .log = false}).path);
  ASSERT_TRUE(bare.ok()) << bare.status();
  for (const char* name : {"model.safetensors", "rounds.log", "clients.jsonl"})
    EXPECT_FALSE(bare->files().contains(name)) << name;
  EXPECT_THAT(bare->manifest().left_out, Contains(HasSubstr("model's weights")));
  EXPECT_THAT(bare->manifest().left_out, Contains(HasSubstr("--with-clients")));
  const auto whole = Bundle::Open(Pack({.run = run, .clients = true}).path);
  EXPECT_TRUE(whole->files().contains("clients.jsonl"));
}

TEST_F(Bundles, HaveNoKeysOfTheMachineAndKeepThoseThatDecideBits) {
  const std::string config = Whole().at("config.toml");
  for (const char* key : {"out =", "listen", "[server]"}) EXPECT_THAT(config, Not(HasSubstr(key)));
  for (const char* key : {"rounds = 2", "seed = 7", "lr = 0.1", "path = \"/data/rows.csv\""})
    EXPECT_THAT(config, HasSubstr(key));
  const auto again = ParseDocument(config, "again", "");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(PortableToml(*again),
            absl::StrReplaceAll(config, {{config.substr(0, config.find('\n') + 1), ""}}));
}

TEST(Portable, KeepsTablesInTables) {
  const auto document = ParseDocument(
      "plugins = []\n[algorithm]\nname = \"x\"\n[algorithm.\"my rule\"]\nmu = 1.0\n"
      "[run]\nout = \"o\"\n[run.stop]\npatience = 3\n[state]\nurl = \"redis://u:secret@h\"\n",
      "c.toml", "");
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(PortableToml(*document),
            "plugins = []\n\n[algorithm]\nname = \"x\"\n\n[algorithm.\"my rule\"]\nmu = 1.0\n\n"
            "[run.stop]\npatience = 3\n");
}

TEST(Portable, KnowsWhichKeysRunCode) {
  const auto document = ParseDocument(
      "plugins = [\"a.so\"]\n[model]\ntorchscript = \"m.pt\"\n[workers]\nbackend = \"process\"\n"
      "command = \"./train\"\n",
      "c.toml", "");
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_THAT(KeysThatRunCode(FlatValues(*document)),
              ElementsAre("model.torchscript", "plugins", "workers.command"));
  const auto module = ParseDocument("[workers]\nbackend = \"/x/b.so\"\n", "c.toml", "");
  EXPECT_THAT(KeysThatRunCode(FlatValues(*module)), ElementsAre("workers.backend"));
}

TEST_F(Bundles, DescribeThemselvesAsAResearchObject) {
  const Files files = Whole();
  const auto crate = nlohmann::json::parse(files.at(kCrateFile));
  EXPECT_EQ(crate["@context"], "https://w3id.org/ro/crate/1.1/context");
  std::map<std::string, nlohmann::json> by_id;
  for (const auto& entity : crate["@graph"]) {
    EXPECT_TRUE(by_id.emplace(entity["@id"], entity).second) << entity["@id"] << " twice";
  }
  EXPECT_EQ(by_id.at(kCrateFile)["conformsTo"]["@id"], "https://w3id.org/ro/crate/1.1");
  EXPECT_EQ(by_id.at(kCrateFile)["about"]["@id"], "./");
  const auto& root = by_id.at("./");
  EXPECT_EQ(root["@type"], "Dataset");
  EXPECT_EQ(root["datePublished"], "2026-11-18");
  std::set<std::string> parts;
  for (const auto& part : root["hasPart"]) parts.insert(part["@id"].get<std::string>());
  for (const auto& [name, bytes] : files) {
    if (name == kCrateFile) continue;
    EXPECT_TRUE(parts.contains(name)) << name;
    ASSERT_TRUE(by_id.contains(name)) << name;
    EXPECT_EQ(by_id.at(name)["@type"], "File");
    if (name == kManifestFile) continue;
    EXPECT_EQ(by_id.at(name)["contentSize"], absl::StrCat(bytes.size()));
    EXPECT_EQ(by_id.at(name)["sha256"], Sha256Hex(BytesOf(absl::string_view(bytes))));
  }
  // Every reference leads somewhere.
  const auto& action = by_id.at("#run");
  EXPECT_EQ(action["@type"], "CreateAction");
  EXPECT_EQ(by_id.at(action["instrument"]["@id"].get<std::string>())["@type"],
            "SoftwareApplication");
  for (const char* key : {"object", "result"}) {
    for (const auto& reference : action[key])
      EXPECT_TRUE(by_id.contains(reference["@id"].get<std::string>())) << reference;
  }
}

TEST_F(Bundles, AreRefusedWithAnyByteChanged) {
  const std::string bytes = *ReadFile(Pack().path);
  for (size_t i = 0; i<bytes.size(); i += bytes.size()> 20000 ? 7 : 1) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x20);
    ASSERT_FALSE(Bundle::Parse(changed, "b.zip").ok()) << "byte " << i;
  }
}

TEST_F(Bundles, AreRefusedCutShortOrLengthened) {
  const std::string bytes = *ReadFile(Pack().path);
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 50)
    EXPECT_NE(Refusal(bytes.substr(0, size)), "") << size;
  EXPECT_NE(Refusal(bytes.substr(0, bytes.size() - 1)), "");
  EXPECT_NE(Refusal(bytes + std::string(1, '\0')), "");
  EXPECT_NE(Refusal("x" + bytes), "");
}

TEST_F(Bundles, AreRefusedWithNamesThatLeaveTheFolder) {
  for (const char* name : {"../evil", "/etc/evil", "a/../../evil", "a//b", "./a", "a\\..\\b",
                           "c:evil", "evil\n", "a/..", ""}) {
    Files files = Whole();
    files[name] = "x";
    EXPECT_THAT(Refusal(Archive(files)), HasSubstr("leaves a folder")) << name;
  }
}

TEST_F(Bundles, AreRefusedWithFilesThatAreMissingRepeatedOrUnlisted) {
  const Files whole = Whole();
  for (const auto& [name, bytes] : whole) {
    Files files = whole;
    files.erase(name);
    EXPECT_THAT(Refusal(Archive(files)), HasSubstr(name)) << name;
  }
  std::vector<std::pair<std::string, std::string>> twice(whole.begin(), whole.end());
  twice.emplace_back("config.toml", "# another");
  EXPECT_THAT(Refusal(Archive(twice)), HasSubstr("twice"));
  Files more = whole;
  more["inputs/more"] = "x";
  EXPECT_THAT(Refusal(Archive(more)), HasSubstr("does not list it"));
  Files needed = whole;
  needed.erase("summary.json");
  Edit(needed, [](auto& manifest) {
    for (size_t i = 0; i < manifest["files"].size(); ++i) {
      if (manifest["files"][i]["name"] == "summary.json") manifest["files"].erase(i--);
    }
  });
  EXPECT_THAT(Refusal(Archive(needed)), HasSubstr("\"summary.json\" is missing"));
}

TEST_F(Bundles, AreRefusedWithContentsThatAreNotTheListedOnes) {
  Files files = Whole();
  files["metrics.jsonl"][10] ^= 1;
  EXPECT_THAT(Refusal(Archive(files)), HasSubstr("\"metrics.jsonl\" was changed"));
  files["metrics.jsonl"] += "x";
  EXPECT_THAT(Refusal(Archive(files)), HasSubstr("bytes, and bundle.json says"));
  Files input = Whole();
  Edit(input, [](auto& manifest) {
    manifest["inputs"].push_back({{"key", "model.init"},
                                  {"path", "x"},
                                  {"bytes", 1},
                                  {"sha256", ""},
                                  {"file", "../../etc/passwd"}});
  });
  EXPECT_THAT(Refusal(Archive(input)), HasSubstr("is missing"));
  // A library for a run that names none.
  Edit(input, [](auto& manifest) { manifest["inputs"].back()["key"] = "plugins"; });
  EXPECT_THAT(Refusal(Archive(input)), HasSubstr("\"plugins\", which no bundle has"));
}

TEST_F(Bundles, AreRefusedWithSizesBeyondTheFile) {
  const std::string bytes = *ReadFile(Pack().path);
  const size_t directory = bytes.find("PK\x01\x02");
  ASSERT_NE(directory, std::string::npos);
  const auto with = [&](size_t at, uint32_t value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + directory + at, &value, sizeof(value));
    return Refusal(changed);
  };
  EXPECT_THAT(with(20, 0xfffffff0U), HasSubstr("more bytes than the file"));  // packed
  EXPECT_THAT(with(24, 0xfffffff0U), HasSubstr("more bytes than the file"));  // unpacked
  EXPECT_NE(with(42, 0xfffffff0U), "");                                       // where it begins
  std::string deflated = bytes;
  deflated[directory + 10] = 8;
  EXPECT_THAT(Refusal(deflated), HasSubstr("compressed"));
  // Many members that share the bytes of one.
  std::string shared = bytes.substr(0, directory);
  const size_t next = bytes.find("PK\x01\x02", directory + 4);
  std::string entry = bytes.substr(directory, next - directory);
  const size_t name_at = 46;
  for (int i = 0; i < 3000; ++i) {
    const std::string name = absl::StrCat(100000 + i);
    std::memcpy(entry.data() + name_at, name.data(), name.size());
    shared += entry;
  }
  std::string end = bytes.substr(bytes.rfind("PK\x05\x06"));
  const uint16_t entries = 3000;
  std::memcpy(end.data() + 8, &entries, 2);
  std::memcpy(end.data() + 10, &entries, 2);
  EXPECT_THAT(Refusal(shared + end), HasSubstr("more bytes than the file"));
}

TEST_F(Bundles, AreRefusedWithAManifestOfAnotherKind) {
  const auto refused = [&](const std::string& manifest) {
    Files files = Whole();
    files[kManifestFile] = manifest;
    return Refusal(Archive(files));
  };
  EXPECT_THAT(refused("nonsense"), HasSubstr("is not JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("is not an object"));
  EXPECT_THAT(refused("{}"), HasSubstr("format is not there"));
  Files later = Whole();
  Edit(later, [](auto& manifest) { manifest["version"] = 2; });
  EXPECT_THAT(Refusal(Archive(later)), HasSubstr("reads version 1"));
  Files long_run = Whole();
  Edit(long_run, [](auto& manifest) { manifest["run"]["rounds"] = (uint64_t{1} << 32) + 2; });
  EXPECT_THAT(Refusal(Archive(long_run)), HasSubstr("rounds is not below 2^32"));
  for (const char* key :
       {"run", "seeds", "profile", "data", "inputs", "files", "left_out", "macaw"}) {
    Files files = Whole();
    Edit(files, [&](auto& manifest) { manifest[key] = 7; });
    EXPECT_NE(Refusal(Archive(files)), "") << key;
  }
}

TEST_F(Bundles, PackFirstWeightsAndNameOtherFilesByTheirDigest) {
  HandRun run;
  const std::string weights = folder_.Write("w.safetensors", "weights");
  const std::string table = folder_.Write("devices.csv", "a,b\n");
  run.config = absl::StrCat(run.config, "[model]\ninit = \"", weights, "\"\n[devices]\nfile = \"",
                            table, "\"\n");
  const auto bundle = Bundle::Open(Pack({.run = WriteHandRun(folder_, "inputs", run)}).path);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_EQ(bundle->files().at("inputs/model.init.safetensors"), "weights");
  std::map<std::string, BundledInput> inputs;
  for (const BundledInput& input : bundle->manifest().inputs) inputs[input.key] = input;
  EXPECT_EQ(inputs.at("devices.file").file, "");
  EXPECT_EQ(inputs.at("devices.file").sha256, Sha256Hex(BytesOf(absl::string_view("a,b\n"))));
  EXPECT_THAT(bundle->manifest().left_out, Contains(HasSubstr("devices.file")));
}

TEST_F(Bundles, RefuseFilesThatHaveChangedSinceTheRun) {
  HandRun run;
  const std::string weights = folder_.Write("w.safetensors", "weights");
  const std::string one = folder_.Write("a.so", "one"), two = folder_.Write("b.so", "two");
  run.config = absl::StrCat("plugins = [\"", one, "\", \"", two, "\"]\n", run.config,
                            "[model]\ninit = \"", weights, "\"\n");
  const std::string folder = WriteHandRun(folder_, "inputs", run);
  auto summary = nlohmann::json::parse(*ReadFile(folder + "/summary.json"));
  summary["inputs"] = {{"model.init", DigestOfInput(weights)},
                       {"plugins", DigestOfInput(one) + DigestOfInput(two)}};
  folder_.Write("inputs/summary.json", summary.dump());
  const auto refusal = [&] {
    return std::string(
        PackBundle({.run = folder, .out = folder_ / "changed.zip"}).status().message());
  };
  Pack({.run = folder});
  folder_.Write("w.safetensors", "others!");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("model.init: " + weights), HasSubstr("not the file that the run had"),
                    HasSubstr(DigestOfInput(weights))));
  folder_.Write("w.safetensors", "weights");
  folder_.Write("b.so", "2");
  EXPECT_THAT(refusal(), HasSubstr("plugins: " + two));
  EXPECT_FALSE(FileExists(folder_ / "changed.zip"));
  // One that is gone is named as such.
  std::filesystem::remove(two);
  EXPECT_THAT(Pack({.run = folder}).manifest.left_out, Contains(HasSubstr("b.so, which is gone")));
}

TEST_F(Bundles, HaveTheFiguresOfTheFolderWithNamesThatTheirReaderTakes) {
  const std::string run = WriteHandRun(folder_, "run"), longest = std::string(243, 'x') + ".svg";
  folder_.Write("run/loss by round.svg", "<svg/>");
  folder_.Write("run/" + longest, "<svg/>");
  const auto bundle = Bundle::Open(Pack({.run = run}).path);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_EQ(bundle->files().at("figures/loss by round.svg"), "<svg/>");
  EXPECT_TRUE(bundle->files().contains("figures/" + longest));
  EXPECT_THAT(bundle->files().at(kCrateFile), HasSubstr("figures/loss%20by%20round.svg"));
  for (const std::string name : {"a\tb.svg", "a:b.svg", "a\\b.svg", "a\xff.svg", "x"}) {
    const std::string odd = folder_.Write("run/" + (name == "x" ? "x" + longest : name), "<svg/>");
    const auto packed = PackBundle({.run = run, .out = folder_ / "odd.zip"});
    EXPECT_THAT(packed.status().message(), HasSubstr("needs a plainer name")) << name;
    std::filesystem::remove(odd);
  }
}

TEST_F(Bundles, AreOfRunsThatAreOver) {
  HandRun open;
  open.end = "";
  const auto packed =
      PackBundle({.run = WriteHandRun(folder_, "open", open), .out = folder_ / "x.zip"});
  EXPECT_THAT(packed.status().message(), HasSubstr("has no result yet"));
  // It was given more rounds, and these are not over.
  const std::string more = WriteHandRun(folder_, "more");
  folder_.Write("more/metrics.jsonl",
                absl::StrCat(*ReadFile(more + "/metrics.jsonl"), "{\"round\":3}\n"));
  EXPECT_THAT(PackBundle({.run = more, .out = folder_ / "x.zip"}).status().message(),
              HasSubstr("has not ended"));
  EXPECT_THAT(PackBundle({.run = folder_ / "none"}).status().message(),
              HasSubstr("is not the folder of a run"));
}

}  // namespace
}  // namespace macaw::cli
