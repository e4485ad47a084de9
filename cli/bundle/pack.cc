// What goes into a bundle.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/bundle/bundle.h"
#include "cli/bundle/crate.h"
#include "cli/bundle/portable.h"
#include "cli/config/inputs.h"
#include "cli/results/ending.h"
#include "cli/results/result.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/named_file.h"
#include "core/safetensors.h"
#include "core/sha256.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/zip_writer.h"
#include "server/log/reader.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;
namespace log = server::log;
using OrderedJson = nlohmann::ordered_json;

// A file to be packed, in memory or mapped.
struct Content {
  std::string name;
  std::string text;
  std::unique_ptr<MappedFile> mapped;

  std::span<const std::byte> bytes() const {
    return mapped != nullptr ? mapped->bytes() : BytesOf(absl::string_view(text));
  }
};

// As summary.json has it: of the tensors in the order of the file, which is that of the layout.
std::string DigestOfFile(const SafetensorsFile& file) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : file.tensors())
    tensors.push_back(
        {.name = name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes});
  std::ranges::sort(tensors, {}, [](const TensorToWrite& tensor) { return tensor.bytes.data(); });
  return DigestOfTensors(tensors).Hex();
}

class Packer {
 public:
  explicit Packer(const BundleOptions& options) : options_(options) {}

  absl::StatusOr<PackedBundle> Pack() {
    MACAW_RETURN_IF_ERROR(CheckOver());
    MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(In("config.toml")));
    AddText(
        "config.toml",
        absl::StrCat("# What a run of Macaw ran, without the keys of the machine that ran it.\n",
                     PortableToml(document)));
    const std::map<std::string, Value> values = FlatValues(document);
    MACAW_RETURN_IF_ERROR(DescribeRun());
    DescribeData(values);
    MACAW_RETURN_IF_ERROR(AddTables());
    MACAW_RETURN_IF_ERROR(AddModels());
    MACAW_RETURN_IF_ERROR(AddLog());
    MACAW_RETURN_IF_ERROR(AddFigures());
    MACAW_RETURN_IF_ERROR(AddInputs(values));
    manifest_.command = "macaw simulate config.toml";
    manifest_.macaw = options_.version;
    return Write();
  }

 private:
  std::string In(const std::string& name) const { return options_.run + "/" + name; }

  absl::Status CheckOver() const {
    if (!FileExists(In("config.toml")))
      return MissingFile(In("config.toml"),
                         absl::StrCat(options_.run, " is not the folder of a run"));
    if (FileExists(In("summary.json")) && FileExists(In("metrics.jsonl"))) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(options_.run,
                     " has no result yet: it has no summary.json (macaw simulate "
                     "--resume ends the run)"));
  }

  void AddText(std::string name, std::string text) {
    contents_.push_back({.name = std::move(name), .text = std::move(text), .mapped = nullptr});
  }
  absl::Status AddFile(const std::string& name, const std::string& path) {
    MACAW_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    contents_.push_back(
        {.name = name, .text = "", .mapped = std::make_unique<MappedFile>(std::move(file))});
    return absl::OkStatus();
  }
  absl::Status AddIfThere(const std::string& name) {
    return FileExists(In(name)) ? AddFile(name, In(name)) : absl::OkStatus();
  }

  absl::Status DescribeRun() {
    MACAW_ASSIGN_OR_RETURN(const RunResult result, ReadResult(options_.run));
    MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(In("summary.json")));
    const OrderedJson summary = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto word = [](const OrderedJson& object, const char* key) {
      const auto found = object.find(key);
      return found != object.end() && found->is_string() ? found->get<std::string>() : "";
    };
    MACAW_RETURN_IF_ERROR(CheckAgrees(LastRowOfSummary(options_.run).value_or(result.rounds)));
    manifest_.name = result.name;
    manifest_.algorithm = result.algorithm;
    manifest_.end = result.end;
    manifest_.rounds = result.rounds;
    if (!manifest_.has_result()) {
      return absl::FailedPreconditionError(
          absl::StrCat(options_.run, " has no result: it was ", result.end,
                       " before its first round was done, so there is nothing to make again "
                       "(macaw simulate --resume goes on with it)"));
    }
    manifest_.model_digest = result.model_digest;
    manifest_.data.digest = result.data_digest;
    inputs_ = result.inputs;
    if (const auto best = summary.find("best_model"); best != summary.end() && best->is_object())
      best_digest_ = word(*best, "model_digest");
    manifest_.program = word(summary, "program");
    if (const auto profile = summary.find("profile"); profile != summary.end()) {
      manifest_.profile = {.trainer = word(*profile, "trainer"),
                           .instruction_set = word(*profile, "instruction_set"),
                           .libraries = word(*profile, "libraries")};
    }
    return absl::OkStatus();
  }

  // `rounds`: of the last row that the summary knows. A run that goes on has more, and one that has
  // lost rows fewer.
  absl::Status CheckAgrees(uint32_t rounds) const {
    const std::optional<uint32_t> last = LastRow(options_.run);
    if (!last.has_value() || *last == rounds) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(options_.run, " has not ended: its summary.json is of round ", rounds,
                     ", and the last row of metrics.jsonl of round ", *last,
                     " (macaw simulate --resume ends the run)"));
  }

  void DescribeData(const std::map<std::string, Value>& values) {
    const auto text = [&](const char* key) {
      const auto found = values.find(key);
      const std::string* const word =
          found == values.end() ? nullptr : found->second.As<std::string>();
      return word == nullptr ? std::string() : *word;
    };
    for (const auto& [key, value] : values) {
      if (IsSeed(key)) manifest_.seeds[key] = settings::ToToml(value);
    }
    BundledData& data = manifest_.data;
    data.source = text("data.source");
    data.path = text("data.path");
    data.by_name = data.source == "synthetic";
    if (data.by_name) {
      manifest_.left_out.push_back(
          "The data: they are generated, and config.toml says how (data.source = \"synthetic\", "
          "data.seed).");
    } else if (data.source.empty()) {
      manifest_.left_out.push_back(absl::StrCat(
          "The data: the server had none. Its nodes had data with the digest ", data.digest, "."));
    } else {
      manifest_.left_out.push_back(absl::StrCat("The data, ", data.source, " from ", data.path,
                                                ", with the digest ", data.digest,
                                                ": macaw verify --data PATH."));
    }
  }

  absl::Status AddTables() {
    for (const char* name : {"summary.json", "metrics.jsonl", "metrics.own.jsonl", "confusion.json",
                             "callbacks.json", "normalisation.npz"})
      MACAW_RETURN_IF_ERROR(AddIfThere(name));
    if (FileExists(In("callbacks.json"))) {
      manifest_.left_out.push_back(
          "Functions of Python that the run called after its rounds (callbacks.json names them).");
    }
    std::vector<std::string> there;
    for (const char* name : {"clients.jsonl", "clients_evaluated.json", "contributions.jsonl"}) {
      if (!FileExists(In(name))) continue;
      if (options_.clients) MACAW_RETURN_IF_ERROR(AddFile(name, In(name)));
      there.emplace_back(name);
    }
    if (!options_.clients && !there.empty()) {
      manifest_.left_out.push_back(absl::StrCat("What single clients have reported (",
                                                absl::StrJoin(there, ", "), "): --with-clients."));
    }
    return absl::OkStatus();
  }

  absl::Status AddModels() {
    if (!options_.model) {
      manifest_.left_out.push_back(absl::StrCat(
          "The model's weights: --without-model. Their digest is ", manifest_.model_digest, "."));
      return absl::OkStatus();
    }
    MACAW_RETURN_IF_ERROR(AddModel("model.safetensors", manifest_.model_digest));
    MACAW_RETURN_IF_ERROR(AddModel("model.best.safetensors", best_digest_));
    if (FileExists(In("models/0.safetensors")))
      manifest_.left_out.push_back("The models in models/ beyond the first, model.safetensors.");
    if (FileExists(In("unlearned")))
      manifest_.left_out.push_back("The models without a client's updates, in unlearned/.");
    manifest_.left_out.push_back("Checkpoints and clients' states.");
    return absl::OkStatus();
  }

  // Refuses weights that are cut, or others than those of the summary. `digest` "": it names none.
  absl::Status AddModel(const std::string& name, const std::string& digest) {
    if (!FileExists(In(name))) return absl::OkStatus();
    const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(In(name));
    if (!file.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.status().message(), "; summary.json names weights with the digest ",
                       digest, ". Put the file back from a copy, or pack --without-model"));
    }
    const std::string is = DigestOfFile(*file);
    if (digest.empty() || is == digest) return AddFile(name, In(name));
    return absl::InvalidArgumentError(
        absl::StrCat(In(name), " has other weights than summary.json says: their digest is ", is,
                     ", and the one in summary.json ", digest,
                     ". Put the file back from a copy, or pack --without-model"));
  }

  absl::Status AddLog() {
    if (!FileExists(In("rounds.log"))) {
      manifest_.left_out.push_back("The log of rounds: the run has none.");
      return DateBySummary();
    }
    MACAW_ASSIGN_OR_RETURN(log::Reader reader, log::Reader::Open(In("rounds.log")));
    std::optional<int64_t> began, ended;
    while (true) {
      MACAW_ASSIGN_OR_RETURN(const std::optional<log::Entry> entry, reader.Next());
      if (!entry.has_value()) break;
      if (const auto* session = std::get_if<log::RunOpened>(&entry->record); session && !began)
        began = session->wall_ns;
      if (began.has_value()) ended = *began + entry->ns;  // ns: since the first session
    }
    const auto text = [](const std::optional<int64_t>& ns) {
      return ns.has_value() ? absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixNanos(*ns),
                                               absl::UTCTimeZone())
                            : std::string();
    };
    manifest_.began = text(began);
    manifest_.ended = text(ended);
    if (manifest_.ended.empty()) MACAW_RETURN_IF_ERROR(DateBySummary());
    if (options_.log) return AddFile("rounds.log", In("rounds.log"));
    manifest_.left_out.push_back(
        "The log of rounds: --without-log. A verification sees metrics and models alone.");
    return absl::OkStatus();
  }

  // A run without a log has no time of its end: the file's stands for it.
  absl::Status DateBySummary() {
    std::error_code error;
    const auto written = fs::last_write_time(In("summary.json"), error);
    if (error) return FileError("cannot look at", In("summary.json"), error.value());
    const auto since = std::chrono::file_clock::to_sys(written).time_since_epoch();
    manifest_.ended = absl::FormatTime(
        "%Y-%m-%dT%H:%M:%SZ",
        absl::FromUnixSeconds(std::chrono::duration_cast<std::chrono::seconds>(since).count()),
        absl::UTCTimeZone());
    return absl::OkStatus();
  }

  // Adds pictures and pages that lie in the run's folder.
  absl::Status AddFigures() {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(options_.run, ignored)) {
      const std::string kind = entry.path().extension().string();
      const bool is_figure = kind == ".svg" || kind == ".png" || kind == ".pdf" || kind == ".html";
      if (is_figure && entry.is_regular_file(ignored))
        names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    for (const std::string& name : names) {
      const std::string packed = "figures/" + name;
      if (!IsSafeName(packed)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the figure \"", EscapeToUtf8(name), "\" in ", options_.run,
            " needs a plainer name: in UTF-8, without control characters, ':' and '\\', and of ",
            "247 bytes at most"));
      }
      MACAW_RETURN_IF_ERROR(AddFile(packed, In(name)));
    }
    return absl::OkStatus();
  }

  // Refuses files that have changed since the run: the bundle would name them as what it had.
  absl::Status CheckAreOfTheRun(const std::string& key, const std::vector<std::string>& paths) {
    const auto stated = inputs_.find(key);
    if (stated == inputs_.end()) return absl::OkStatus();  // an earlier release did not say
    // A file that could not be read has no digest there: then nothing says whose the others are.
    if (stated->second.size() != kInputDigits * paths.size()) return absl::OkStatus();
    std::string rest = stated->second;  // one digest after the other (config/inputs.h)
    for (const std::string& path : paths) {
      const std::string is = DigestOfInput(path);
      const std::string had = rest.substr(0, kInputDigits);
      rest.erase(0, kInputDigits);
      if (is.empty() || is == had) continue;  // it is gone, as the bundle says
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": ", path, " is not the file that the run had: its digest is ", is,
                       ", and the one in summary.json ", had, ". Put the file back from a copy"));
    }
    return absl::OkStatus();
  }

  // Other files that the configuration names. First weights and modules are part of the model; all
  // others may say something of the data.
  absl::Status AddInputs(const std::map<std::string, Value>& values) {
    for (const auto& [key, value] : values) {
      if (IsOfOneMachine(key) || key.starts_with("data.")) continue;
      const std::vector<std::string> paths = FilesNamedBy(key, value);
      MACAW_RETURN_IF_ERROR(CheckAreOfTheRun(key, paths));
      for (const std::string& path : paths) {
        BundledInput input{.key = key, .path = path};
        std::error_code ignored;
        const bool there = fs::is_regular_file(path, ignored);
        if (there) {
          MACAW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
          input.bytes = file.bytes().size();
          input.sha256 = Sha256Hex(file.bytes());
        }
        if (there && options_.model && IsPacked(key)) {
          input.file = absl::StrCat("inputs/", key, key == "model.init" ? ".safetensors" : ".pt");
          MACAW_RETURN_IF_ERROR(AddFile(input.file, path));
        } else {
          manifest_.left_out.push_back(
              absl::StrCat(key, ": ", path, there ? ", with the sha256 " : ", which is gone",
                           input.sha256, " (macaw verify --set ", key,
                           value.As<Array>() != nullptr ? "='[\"PATH\", …]'" : "=PATH", ")."));
        }
        manifest_.inputs.push_back(std::move(input));
      }
    }
    if (const auto command = values.find("workers.command"); command != values.end()) {
      manifest_.left_out.push_back(absl::StrCat("The training program, ",
                                                settings::ToToml(command->second),
                                                " (macaw verify --set workers.command=…)."));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PackedBundle> Write() {
    const auto list = [this] {
      std::ranges::sort(contents_, {}, &Content::name);
      manifest_.files.clear();
      for (const Content& content : contents_) {
        manifest_.files.push_back({.name = content.name,
                                   .bytes = content.bytes().size(),
                                   .sha256 = Sha256Hex(content.bytes())});
      }
    };
    list();
    AddText(kCrateFile, CrateJson(manifest_, options_.license));
    list();
    AddText(kManifestFile, ManifestJson(manifest_));
    std::vector<data::ZipEntry> entries;
    for (const Content& content : contents_)
      entries.push_back({.name = content.name, .bytes = content.bytes()});
    // What people look at first comes first.
    std::ranges::stable_sort(entries, {}, [](const data::ZipEntry& entry) {
      return entry.name == kCrateFile ? 0 : entry.name == kManifestFile ? 1 : 2;
    });
    const fs::path folder = fs::absolute(options_.run).lexically_normal();
    const fs::path name =
        folder.has_filename() ? folder.filename() : folder.parent_path().filename();
    PackedBundle packed{.path = options_.out.empty() ? name.string() + ".macaw.zip" : options_.out};
    MACAW_RETURN_IF_ERROR(WriteNamedFile(packed.path, [&](const std::string& path) -> absl::Status {
      MACAW_RETURN_IF_ERROR(data::WriteStoredZip(path, entries));
      MACAW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
      packed.bytes = file.bytes().size();
      packed.sha256 = Sha256Hex(file.bytes());
      return absl::OkStatus();
    }));
    packed.manifest = std::move(manifest_);
    return packed;
  }

  const BundleOptions& options_;
  Manifest manifest_;
  std::string best_digest_;  // of model.best.safetensors; "": the summary has none
  std::map<std::string, std::string> inputs_;  // digests of the files that the run had, by key
  std::vector<Content> contents_;
};

}  // namespace

absl::StatusOr<PackedBundle> PackBundle(const BundleOptions& options) {
  return Packer(options).Pack();
}

}  // namespace macaw::cli
