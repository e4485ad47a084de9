#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "cli/bundle/bundle.h"
#include "cli/bundle/manifest.h"
#include "cli/config/reader.h"
#include "cli/config/toml.h"
#include "cli/config/writer.h"
#include "core/digest.h"
#include "core/fd.h"
#include "core/files.h"
#include "core/random.h"
#include "core/safetensors.h"
#include "core/sha256.h"
#include "core/status.h"
#include "data/examples.h"
#include "data/options.h"
#include "data/partition_file.h"
#include "data/prepared.h"
#include "data/zip_writer.h"
#include "scheduler/cohort.h"
#include "scheduler/feedback.h"
#include "sdk/catalogue.h"
#include "server/log/codec.h"
#include "server/log/json.h"
#include "state/blob.h"
#include "testing/random_record.h"
#include "tests/data/npz_files.h"
#include "tests/fuzz/scratch_file.h"
#include "tests/fuzz/targets.h"
#include "virtual_time/table.h"

namespace macaw::fuzz {
namespace {

std::span<const std::byte> BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// ---- data and models

bool FeedSafetensors(absl::string_view bytes) {
  const auto file = SafetensorsFile::Parse(BytesOf(bytes), "model");
  if (!file.ok()) return false;
  for (const auto& [name, tensor] : file->tensors()) {
    MACAW_FUZZ_EXPECT(tensor.bytes.empty() || (tensor.bytes.data() >= BytesOf(bytes).data() &&
                                               tensor.bytes.data() + tensor.bytes.size() <=
                                                   BytesOf(bytes).data() + bytes.size()));
    MACAW_FUZZ_EXPECT(file->Get(name, tensor.dtype).ok());
  }
  return true;
}

std::vector<std::string> Models() {
  const std::string values(24, '\1');
  return {SafetensorsHeader({{"0.weight", "F32", {2, 2}, 16}, {"step", "I64", {1}, 8}},
                            {{"name", "logistic"}}) +
          values};
}

// Opens a data source from the bytes and reads every row.
bool FeedData(const std::string& source, absl::string_view bytes) {
  ScratchFile& file = ScratchFile::Once();
  file.Fill(bytes);
  const auto dataset = data::OpenDataset(
      {.source = source, .path = file.path(), .test_fraction = 0.2, .resident = "true"},
      {.clients = 2});
  if (!dataset.ok()) {
    MACAW_FUZZ_EXPECT(dataset.status().message().find('\n') == absl::string_view::npos);
    return false;
  }
  const data::DatasetInfo& info = (*dataset)->info();
  for (ClientId client; client.value < std::min<uint64_t>(info.clients, 100); ++client.value) {
    (void)(*dataset)->ClientName(client);
    const auto rows = (*dataset)->Client(client, data::Split::kTrain);
    if (rows.ok())
      MACAW_FUZZ_EXPECT(rows->size() == (*dataset)->Examples(client, data::Split::kTrain));
  }
  return true;
}

bool FeedPrepared(absl::string_view bytes) { return FeedData("prepared", bytes); }
bool FeedLeaf(absl::string_view bytes) { return FeedData("leaf", bytes); }
bool FeedCsv(absl::string_view bytes) { return FeedData("csv", bytes); }
bool FeedNpz(absl::string_view bytes) { return FeedData("npz", bytes); }
bool FeedLibsvm(absl::string_view bytes) { return FeedData("libsvm", bytes); }

std::vector<std::string> PreparedFiles() {
  const auto dataset = data::OpenDataset(
      {.source = "synthetic", .val_fraction = 0.1, .synthetic = {.clients = 2, .max_size = 4}}, {});
  // It is written aside and renamed, which a file in memory cannot be.
  char name[] = "/tmp/macaw_fuzz_XXXXXX";
  const Fd fd(::mkstemp(name));
  MACAW_FUZZ_EXPECT(fd.open() && data::WritePrepared(**dataset, name).ok());
  std::vector<std::string> examples = {*ReadFile(name)};
  ::unlink(name);
  return examples;
}

std::vector<std::string> LeafFiles() {
  return {R"({"users":["a","b"],"num_samples":[2,1],"user_data":{"a":{"x":[[1,2],[3,4]],)"
          R"("y":[0,1]},"b":{"x":[[5,6]],"y":[1]}}})",
          R"({"users":["a\n"],"user_data":{"a\n":{"x":["to be"," or n"],"y":[" ","o"]}}})"};
}
std::vector<std::string> CsvFiles() {
  return {"a,b,c\n1,2,0\n3,4,1\n5,6,1\n7,8.5,0\n",
          "x,kind\n1,\"a, b\"\n3,cat\n5,\"a, b\"\n7,cat\n"};
}
std::vector<std::string> NpzFiles() {
  const std::vector<data::ZipFile> files = {
      {"x.npy", data::NpyOf<float>("<f4", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
      {"y.npy", data::NpyOf<int64_t>("<i8", {4}, {0, 1, 1, 0})},
      {"client.npy", data::NpyBytes("|S2", {4}, std::string("a\0bbbba\0", 8))}};
  return {data::ZipBytes(files, data::Packing::kDeflated),
          data::ZipBytes(files, data::Packing::kWide)};
}
std::vector<std::string> LibsvmFiles() {
  return {"+1 1:0.5 3:2\n-1 2:1\n+1 1:1 2:2 3:3\n-1 3:-4e-2\n"};
}

// Divides ten rows as the file says.
bool FeedPartition(absl::string_view bytes) {
  static const auto* const examples = [] {
    data::ExampleStore store;
    store.floats.assign(10, 0.5F);
    store.classes = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
    return new data::Examples(*data::Own(std::move(store), 1, "ten rows"));
  }();
  ScratchFile& file = ScratchFile::Once();
  file.Fill(bytes);
  const auto division = data::ReadPartition(file.path(), *examples, {.val_fraction = 0.2});
  if (!division.ok()) {
    MACAW_FUZZ_EXPECT(division.status().message().find('\n') == absl::string_view::npos);
    return false;
  }
  // No row trains two clients, or is used for training and for testing.
  std::vector<int> uses(10);
  for (const uint32_t row : division->central_test) uses.at(row) = 1;
  for (ClientId client; client.value < division->clients(); ++client.value) {
    for (const uint32_t row : division->Of(client, data::Split::kTrain))
      MACAW_FUZZ_EXPECT(uses.at(row)++ == 0);
  }
  return true;
}

std::vector<std::string> Partitions() {
  return {R"({"a":[0,1,2],"b":[3,4],"test":[5,6]})",
          R"({"a":[0,1,2],"b":[3,4],"test":[5,6],"validation":{"a":[7]},"client_test":{"b":[8]}})"};
}

// ---- results of others

bool FeedBundle(absl::string_view bytes) {
  const auto bundle = cli::Bundle::Parse(std::string(bytes), "bundle");
  if (!bundle.ok()) {
    MACAW_FUZZ_EXPECT(!bundle.status().message().empty() &&
                      bundle.status().message().find('\n') == absl::string_view::npos);
    return false;
  }
  for (const auto& [name, content] : bundle->files()) {
    MACAW_FUZZ_EXPECT(name.front() != '/' && name.find("..") != 0 &&
                      name.find("/../") == std::string::npos);
  }
  return true;
}

// What bundle.json says, whatever the archive around it is.
bool FeedManifest(absl::string_view bytes) {
  const auto manifest = cli::ParseManifest(std::string(bytes), "bundle");
  if (!manifest.ok()) {
    MACAW_FUZZ_EXPECT(manifest.status().message().find('\n') == absl::string_view::npos);
    return false;
  }
  const std::string again = cli::ManifestJson(*manifest);
  const auto parsed = cli::ParseManifest(again, "again");
  MACAW_FUZZ_EXPECT(parsed.ok() && cli::ManifestJson(*parsed) == again);
  return true;
}

cli::Manifest SmallManifest() {
  return {.macaw = "9.9.9",
          .program = "macaw-server 9.9.9",
          .command = "macaw simulate config.toml",
          .name = "run",
          .rounds = 2,
          .seeds = {{"run.seed", "7"}},
          .data = {.source = "synthetic", .by_name = true},
          .inputs = {{.key = "model.init", .path = "w", .bytes = 1, .sha256 = "x", .file = ""}},
          .left_out = {"The data."}};
}
std::vector<std::string> Manifests() { return {cli::ManifestJson(SmallManifest())}; }

std::vector<std::string> Bundles() {
  std::map<std::string, std::string> files = {{"config.toml", "[run]\n"},
                                              {"summary.json", "{}"},
                                              {"metrics.jsonl", "{\"round\":1}\n"},
                                              {cli::kCrateFile, "{}"}};
  cli::Manifest manifest = SmallManifest();
  for (const auto& [name, content] : files)
    manifest.files.push_back({name, content.size(), Sha256Hex(BytesOf(content))});
  files[cli::kManifestFile] = cli::ManifestJson(manifest);
  std::vector<data::ZipEntry> entries;
  for (const auto& [name, content] : files) entries.push_back({name, BytesOf(content)});
  char name[] = "/tmp/macaw_fuzz_XXXXXX";
  const Fd fd(::mkstemp(name));
  MACAW_FUZZ_EXPECT(fd.open() && data::WriteStoredZip(name, entries).ok());
  std::vector<std::string> examples = {*ReadFile(name)};
  ::unlink(name);
  return examples;
}

// ---- devices of simulated clients

bool FeedDeviceTable(absl::string_view bytes) {
  const auto table = virtual_time::ParseDevices(bytes, "devices.csv");
  if (!table.ok()) {
    MACAW_FUZZ_EXPECT(table.status().message().find('\n') == absl::string_view::npos);
    return false;
  }
  MACAW_FUZZ_EXPECT(!table->devices.empty());
  MACAW_FUZZ_EXPECT(table->names.empty() || table->names.size() == table->devices.size());
  for (const virtual_time::Device& device : table->devices) {
    MACAW_FUZZ_EXPECT(device.samples_per_s > 0 && device.down.mean > 0 && device.up.mean > 0);
    MACAW_FUZZ_EXPECT(device.down.deviation >= 0 && device.up.deviation >= 0);
  }
  return true;
}

bool FeedPresenceTable(absl::string_view bytes) {
  const auto table = virtual_time::ParsePresence(bytes, "presence.csv");
  if (!table.ok()) {
    MACAW_FUZZ_EXPECT(table.status().message().find('\n') == absl::string_view::npos);
    return false;
  }
  for (size_t device = 0; device < table->names.size(); ++device) {
    double end = -1;
    for (const virtual_time::Interval& interval : table->Of(device)) {
      MACAW_FUZZ_EXPECT(end < interval.on && interval.on < interval.off);
      end = interval.off;
    }
    MACAW_FUZZ_EXPECT(end > 0 && end <= table->records[device].period);
  }
  return true;
}

std::vector<std::string> DeviceTables() {
  return {"device,samples_per_s,down_kB_s,up_kB_s,down_sd_kB_s,up_sd_kB_s\n\"a, b\",1,2,3,,4\n",
          "up_kB_s;samples_per_s;down_kB_s\r\n1e3;0.5;+7\r\n"};
}
std::vector<std::string> PresenceTables() {
  return {"device,on_s,off_s,period_s\na,0,10,20\nb,5,8,9\na,10,20,20\n"};
}

// ---- states of clients, in a store that others may write

constexpr Attempt kVersion{.client = ClientId(7), .fence = {.epoch = 2, .counter = 15}};

const state::StateSchema& Schema() {
  static const auto* const schema =
      new state::StateSchema{ParameterLayout::Scalars("control", 3, DType::kF32)};
  return *schema;
}

bool OpenState(absl::string_view bytes) {
  auto buffer = std::make_shared<AlignedBuffer>(bytes.size());
  std::ranges::copy(BytesOf(bytes), buffer->bytes().begin());
  const auto state = state::OpenBlob(buffer, kVersion, Schema());
  MACAW_FUZZ_EXPECT(state.ok() ? state->items.size() == 1 : absl::IsDataLoss(state.status()));
  return state.ok();
}

bool FeedState(absl::string_view bytes) {
  const bool accepted = OpenState(bytes);
  // Once more with the checksum that these bytes should have, which no fuzzer can make.
  uint64_t checksum = 0;
  if (bytes.size() >= sizeof(checksum)) {
    std::string whole(bytes);
    checksum = Checksum(BytesOf(bytes).subspan(sizeof(checksum)));
    std::memcpy(whole.data(), &checksum, sizeof(checksum));
    OpenState(whole);
  }
  (void)state::ReadHeader(BytesOf(bytes));
  (void)state::NameIn(BytesOf(bytes));
  return accepted;
}

std::vector<std::string> States() {
  FlatVector control(Schema()[0]);
  control.As<float>()[2] = 4;
  const ConstVectorView view = std::as_const(control).view();
  const auto blob = state::EncodeBlob(kVersion, {&view, 1}, Schema());
  const auto bytes = std::as_const(*blob).bytes();
  return {{reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

// ---- the log of rounds

bool FeedLogRecord(absl::string_view bytes) {
  namespace log = server::log;
  const auto entry = log::Decode(bytes, 1);
  if (!entry.ok()) return false;
  if (std::holds_alternative<log::Unknown>(entry->record)) return false;
  std::string again;
  log::Encode(*entry, again);
  const auto twice = log::Decode(again, 1);
  MACAW_FUZZ_EXPECT(twice.ok());
  std::string thrice;
  log::Encode(*twice, thrice);
  MACAW_FUZZ_EXPECT(again == thrice);
  (void)log::JsonOf(*entry);
  return true;
}

std::vector<std::string> LogRecords() {
  std::vector<std::string> examples;
  server::fixtures::RandomRecord random(5);
  for (server::log::Record& record : random.OneOfEach()) {
    std::string bytes;
    server::log::Encode({.sequence = 1, .ns = 77, .record = std::move(record)}, bytes);
    examples.push_back(std::move(bytes));
  }
  return examples;
}

// ---- configurations

absl::StatusOr<cli::Config> ReadText(absl::string_view text, bool node) {
  static const auto* const catalogue = new sdk::Catalogue(sdk::Catalogue::Builtins());
  MACAW_ASSIGN_OR_RETURN(const cli::Document document,
                         cli::ParseDocument(std::string(text), "node.toml", "/"));
  return node ? cli::ReadNodeConfig(document, {}, *catalogue)
              : cli::ReadConfig(document, {}, *catalogue);
}

// A file of a node, or one of a run.
bool FeedNodeFile(absl::string_view bytes) {
  bool accepted = false;
  for (const bool node : {true, false}) {
    const auto config = ReadText(bytes, node);
    if (!config.ok()) {
      MACAW_FUZZ_EXPECT(config.status().message().find("node.toml") != absl::string_view::npos);
      continue;
    }
    accepted = true;
    // What was accepted is written into the run's folder and read from there.
    const std::string text = node ? cli::NodeToml(config->node) : cli::EffectiveToml(*config);
    const auto again = ReadText(text, node);
    MACAW_FUZZ_EXPECT(again.ok());
    MACAW_FUZZ_EXPECT((node ? cli::NodeToml(again->node) : cli::EffectiveToml(*again)) == text);
  }
  return accepted;
}

std::vector<std::string> NodeFiles() {
  std::vector<std::string> examples = {
      "[node]\nserver = \"fleet.example.org:47100\"\nowner = true\n[data]\nsource = \"csv\"\n"
      "path = \"rows.csv\"\n[accept]\nhours = \"22:00-06:00\"\nrun_when = [\"idle\", \"-q\"]\n",
      "[run]\nrounds = 3\n[cohort]\nsize = 2\n[data]\nsource = \"synthetic\"\n"
      "synthetic.clients = 3\n[model]\nname = \"logistic\"\n[algorithm]\nname = \"fedprox\"\n"
      "[algorithm.fedprox]\nmu = 0.1\n"};
  // All keys.
  examples.push_back(cli::NodeToml(ReadText(examples[0], true)->node));
  examples.push_back(cli::EffectiveToml(*ReadText(examples[1], false)));
  return examples;
}

// ---- what a checkpoint knows of clients

bool FeedKnownClients(absl::string_view bytes) {
  constexpr uint64_t kClients = 1000;
  bool accepted = false;
  for (const char* sampling : {"oort", "ucb"}) {
    CohortConfig config{.size = 5};
    config.sampling = sampling;
    scheduler::Feedback feedback(config);
    const absl::Status status = feedback.Load(bytes, kClients);
    accepted = accepted || status.ok();
    if (status.ok()) {
      MACAW_FUZZ_EXPECT(feedback.Save() == bytes);
      const std::vector<uint32_t> rows(kClients, 3);
      const auto sampler = scheduler::MakeSampler(config, rows, &feedback);
      MACAW_FUZZ_EXPECT(sampler.ok());
      const Round next(feedback.round().value + 1);
      MACAW_FUZZ_EXPECT((*sampler)->Sample(next).entries.size() == 5);
    } else {
      MACAW_FUZZ_EXPECT(!status.message().empty() && feedback.clients().empty());
    }
  }
  return accepted;
}

std::vector<std::string> KnownClients() {
  std::vector<std::string> examples;
  for (const char* sampling : {"oort", "ucb"}) {
    CohortConfig config;
    config.sampling = sampling;
    scheduler::Feedback feedback(config);
    examples.push_back(feedback.Save());
    feedback.Observe(Round(1), std::vector<scheduler::ClientFact>{
                                   {.client = ClientId(3), .rows = 3, .loss = 2, .seconds = 1},
                                   {.client = ClientId(8), .rows = 3, .left_out = true}});
    feedback.Observe(Round(2), std::vector<scheduler::ClientFact>{
                                   {.client = ClientId(3), .rows = 3, .loss = 1, .seconds = 2},
                                   {.client = ClientId(5), .rows = 3, .loss = 4}});
    examples.push_back(feedback.Save());
  }
  return examples;
}

}  // namespace

std::vector<Target> FileTargets() {
  return {{"safetensors", FeedSafetensors, Models},
          {"prepared", FeedPrepared, PreparedFiles},
          {"leaf", FeedLeaf, LeafFiles},
          {"csv", FeedCsv, CsvFiles},
          {"libsvm", FeedLibsvm, LibsvmFiles},
          {"npz", FeedNpz, NpzFiles},
          {"partition", FeedPartition, Partitions},
          {"bundle", FeedBundle, Bundles},
          {"bundle_manifest", FeedManifest, Manifests},
          {"device_table", FeedDeviceTable, DeviceTables},
          {"presence_table", FeedPresenceTable, PresenceTables},
          {"state", FeedState, States},
          {"log_record", FeedLogRecord, LogRecords},
          {"known_clients", FeedKnownClients, KnownClients},
          {"node_file", FeedNodeFile, NodeFiles}};
}

}  // namespace macaw::fuzz
