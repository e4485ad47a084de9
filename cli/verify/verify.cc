#include "cli/verify/verify.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/bundle/portable.h"
#include "cli/config/reader.h"
#include "cli/config/settings.h"
#include "cli/process/exit.h"
#include "cli/simulate/made_again.h"
#include "cli/simulate/simulate.h"
#include "cli/verify/evaluated_rounds.h"
#include "cli/verify/statements.h"
#include "core/files.h"
#include "core/isa.h"
#include "core/one_line.h"
#include "core/scratch_folder.h"
#include "core/sha256.h"
#include "core/spelling.h"
#include "core/status.h"
#include "sdk/catalogue.h"

namespace macaw::cli {
namespace {

namespace log = server::log;
using OrderedJson = nlohmann::ordered_json;

constexpr char kInstructionSet[] = "workers.instruction_set";
// The tolerance for metrics of a model with the same bits under another numeric profile. Sums of
// float32 losses differ by some 1e-8 then, and a row whose best two classes are equal up to that is
// rare.
constexpr double kOfOneModel = 1e-5;

// Writes what a run's folder has of the bundle, as far as a comparison or a run reads it.
absl::Status Unpack(const Bundle& bundle, const std::string& folder) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  const auto write = [&](const std::string& name) {
    const auto found = bundle.files().find(name);
    if (found == bundle.files().end()) return absl::OkStatus();
    return AtomicWriteFile(folder + "/" + name, absl::string_view(found->second));
  };
  for (const char* name : {"summary.json", "metrics.jsonl", "rounds.log", "clients.jsonl",
                           "model.safetensors", "model.best.safetensors"})
    MACAW_RETURN_IF_ERROR(write(name));
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder + "/inputs"));
  for (const BundledInput& input : bundle.manifest().inputs) {
    // The names are safe (Bundle), and only those of packed inputs are followed.
    if (absl::StartsWith(input.file, "inputs/")) MACAW_RETURN_IF_ERROR(write(input.file));
  }
  return write("config.toml");
}

// Whether rounds may close by the time that they take on the machine.
bool ClosesByTheClock(const Trace& trace) {
  return std::ranges::any_of(trace.settings, [](const auto& setting) {
    const auto& [key, value] = setting;
    double number = 0;
    return (key == "round.deadline" || key == "round.enough" || key == "round.present_within") &&
           absl::SimpleAtod(value, &number) && number > 0;
  });
}

bool IsSet(const std::vector<Override>& overrides, absl::string_view key) {
  return std::ranges::any_of(overrides,
                             [&](const Override& override) { return override.key == key; });
}

class Verifier {
 public:
  Verifier(const Bundle& bundle, const VerifyOptions& options)
      : bundle_(bundle), manifest_(bundle.manifest()), options_(options) {}

  absl::StatusOr<Verification> Run() {
    if (!manifest_.has_result()) {
      return absl::FailedPreconditionError(
          absl::StrCat(bundle_.name(), " has no result: its run was ", OneLine(manifest_.end),
                       " before its first round was done, so there is nothing to make again"));
    }
    MACAW_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::Make("macaw-verify"));
    const std::string recorded = scratch / "recorded";
    MACAW_RETURN_IF_ERROR(Unpack(bundle_, recorded));
    MACAW_ASSIGN_OR_RETURN(Trace first, ReadTrace(recorded, {}));
    MACAW_RETURN_IF_ERROR(CheckStatements(bundle_, first));
    MACAW_RETURN_IF_ERROR(Prepare(recorded));
    const std::string again = options_.out.empty() ? scratch / "again" : options_.out;
    MACAW_RETURN_IF_ERROR(Simulated(first, recorded, again));
    MACAW_ASSIGN_OR_RETURN(Trace second, ReadTrace(again, {}));
    first.path = bundle_.name();
    second.path = options_.out.empty() ? "here" : again;
    Verification& done = verification_;
    done.folder = options_.out;
    done.profile = first.profile;
    done.here = second.profile;
    done.same_profile = first.profile == second.profile;
    done.same_model = !first.model_digest.empty() && first.model_digest == second.model_digest;
    if (!done.same_profile && done.same_model) {
      MACAW_ASSIGN_OR_RETURN(done.same_bits, HasOneModel(again));
    }
    const double tolerance = done.same_profile ? 0
                             : done.same_bits  ? std::min(kOfOneModel, options_.tolerance)
                                               : options_.tolerance;
    const bool by_itself = EndsByItself(first);
    if (!by_itself) KeepToColumns(first, second);
    MACAW_ASSIGN_OR_RETURN(
        done.diff,
        Diff(first, second,
             {.tolerance = tolerance, .digests = done.same_bits, .judge_tensors = false}));
    done.diff.elsewhere.clear();    // the bundle has none of these keys
    if (options_.config.empty()) {  // where its files are here, and what computes it
      std::erase_if(done.diff.settings,
                    [&](const FactDifference& key) { return IsSet(overrides_, key.name); });
    }
    MACAW_ASSIGN_OR_RETURN(
        done.figures,
        CompareFigures({.files = bundle_.files(),
                        .rows = first.rows,
                        .rounds = manifest_.rounds,
                        .model_digest = manifest_.model_digest,
                        .ended_by_itself = by_itself},
                       again, second.rows, {.tolerance = tolerance, .same_model = done.same_bits}));
    return std::move(verification_);
  }

 private:
  // Whether the rule has one model for all. Training reads all that a rule keeps, so runs that end
  // with the same bits of it have computed the same.
  static absl::StatusOr<bool> HasOneModel(const std::string& again) {
    MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(again + "/config.toml"));
    MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, {}));
    MACAW_ASSIGN_OR_RETURN(const Config config,
                           ReadConfig(document, {}, catalogue, Idle::kLeaveOut));
    MACAW_ASSIGN_OR_RETURN(const algorithms::Description* const rule,
                           catalogue.algorithms().Find(config.run.algorithm.name));
    return rule->has_common_model && !rule->has_several_models;
  }

  // Everything that can be wrong before the run begins.
  absl::Status Prepare(const std::string& recorded) {
    MACAW_RETURN_IF_ERROR(WriteConfiguration(recorded));
    MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(config_));
    set_ = options_.set;
    MACAW_ASSIGN_OR_RETURN(overrides_, ParseOverrides(set_));
    if (!options_.config.empty()) return absl::OkStatus();  // it is the user's own
    for (const Override& override : overrides_)
      MACAW_RETURN_IF_ERROR(CheckMaySet(override, "a verification"));
    const std::map<std::string, Value> values = FlatValues(document);
    MACAW_RETURN_IF_ERROR(CheckCode(values));
    MACAW_RETURN_IF_ERROR(UseInputs(values, recorded));
    MACAW_RETURN_IF_ERROR(CheckDataIsThere(values));
    MACAW_RETURN_IF_ERROR(UseInstructionSet(values));
    return CheckDataOf(document, overrides_, manifest_.data.digest);
  }

  // The configuration without the keys of one machine, whatever the bundle's file has.
  absl::Status WriteConfiguration(const std::string& recorded) {
    config_ = options_.config;
    if (!config_.empty()) return absl::OkStatus();
    config_ = recorded + "/run.toml";
    MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(recorded + "/config.toml"));
    if (!FlatValues(document).contains("data.source")) {
      return absl::InvalidArgumentError(
          absl::StrCat("the server of ", bundle_.name(),
                       " had no data: --config names the simulation that has it"));
    }
    return AtomicWriteFile(config_, PortableToml(document));
  }

  absl::Status CheckCode(const std::map<std::string, Value>& values) const {
    std::vector<std::string> keys = KeysThatRunCode(values);
    std::erase_if(keys, [&](const std::string& key) { return IsSet(overrides_, key); });
    if (keys.empty() || options_.trust) return absl::OkStatus();
    std::vector<std::string> shown;
    for (const std::string& key : keys)
      shown.push_back(absl::StrCat(key, " = ", settings::ToToml(values.at(key))));
    return absl::FailedPreconditionError(
        absl::StrCat(OneLine(absl::StrJoin(shown, ", ")),
                     ": the run executes code that the bundle names. --trust allows it; --set ",
                     keys.front(), "=… names code of yours"));
  }

  // Files of the bundle stand for those that the configuration names; the others must be what the
  // run had.
  absl::Status UseInputs(const std::map<std::string, Value>& values, const std::string& recorded) {
    std::map<std::string, std::vector<BundledInput>> inputs;
    for (const BundledInput& input : manifest_.inputs) {
      if (values.contains(input.key)) inputs[input.key].push_back(input);  // else it is not used
    }
    for (const auto& [key, of_key] : inputs) {
      const bool is_list = values.at(key).As<Array>() != nullptr;
      const std::string how =
          absl::StrCat("--set ", OneLine(key), is_list ? "='[\"PATH\", …]'" : "=PATH");
      if (IsSet(overrides_, key)) {
        MACAW_RETURN_IF_ERROR(CheckGiven(key, of_key, how));
        continue;
      }
      for (const BundledInput& input : of_key) {
        if (!input.file.empty()) {
          set_.push_back(absl::StrCat(key, "=", recorded, "/", input.file));
          MACAW_ASSIGN_OR_RETURN(Override override, ParseOverride(set_.back()));
          overrides_.push_back(std::move(override));
        } else if (!input.sha256.empty()) {
          MACAW_RETURN_IF_ERROR(CheckIsOneOf({input}, input.path, how).status());
        }
      }
    }
    return absl::OkStatus();
  }

  // The files that the user names for a key are those that the run had, in any order. One that was
  // gone when the bundle was made may be any.
  absl::Status CheckGiven(const std::string& key, std::vector<BundledInput> had,
                          const std::string& how) const {
    MACAW_ASSIGN_OR_RETURN(const std::optional<Value> value, Lookup({}, overrides_, key));
    const std::vector<std::string> given = FilesNamedBy(key, *value);
    if (given.size() != had.size()) {
      return absl::InvalidArgumentError(absl::StrCat(OneLine(key), ": the run had ",
                                                     Counted(had.size(), "file"),
                                                     ", and --set names ", given.size()));
    }
    for (const std::string& path : given) {
      MACAW_ASSIGN_OR_RETURN(const size_t which, CheckIsOneOf(had, path, how));
      had.erase(had.begin() + static_cast<std::ptrdiff_t>(which));
    }
    return absl::OkStatus();
  }

  // Which of the files that the run had for one key this is. `how`: to say where it is.
  static absl::StatusOr<size_t> CheckIsOneOf(const std::vector<BundledInput>& had,
                                             const std::string& path, const std::string& how) {
    const std::string key = OneLine(had.front().key);
    if (!FileExists(path)) {
      return absl::NotFoundError(
          absl::StrCat(key, ": there is no ", OneLine(path), ": ", how, " says where it is"));
    }
    MACAW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    auto found = std::ranges::find(had, Sha256Hex(file.bytes()), &BundledInput::sha256);
    if (found == had.end()) found = std::ranges::find(had, "", &BundledInput::sha256);
    if (found != had.end()) return static_cast<size_t>(found - had.begin());
    return absl::InvalidArgumentError(absl::StrCat(
        key, ": ", OneLine(path), " is not the file that the run had: its sha256 is not ",
        absl::StrJoin(had, " or ", [](std::string* text, const BundledInput& input) {
          absl::StrAppend(text, OneLine(input.sha256));
        })));
  }

  absl::Status CheckDataIsThere(const std::map<std::string, Value>& values) const {
    for (const char* key : {"data.path", "data.test_path", "partition.path"}) {
      const auto given = std::ranges::find(overrides_, key, &Override::key);
      const auto own = values.find(key);
      const std::string* const text = own == values.end() ? nullptr : own->second.As<std::string>();
      if (given != overrides_.end() || text == nullptr || FileExists(*text)) continue;
      return absl::NotFoundError(
          absl::StrCat(key, ": there is no ", OneLine(*text), ", which the run had: --set ", key,
                       "=PATH says where the data are; they are checked by their digest, ",
                       OneLine(manifest_.data.digest)));
    }
    return absl::OkStatus();
  }

  // The fused kernels of this machine may be able to do what those of the other one did.
  absl::Status UseInstructionSet(const std::map<std::string, Value>& values) {
    if (manifest_.profile.trainer != "fused" || IsSet(overrides_, kInstructionSet))
      return absl::OkStatus();
    const std::vector<Isa> isas = SupportedIsas();
    const auto recorded = std::ranges::find_if(
        isas, [&](Isa isa) { return Name(isa) == manifest_.profile.instruction_set; });
    const auto asked = values.find(kInstructionSet);
    std::string use;
    // The configuration may name another one than the run had.
    if (recorded != isas.end() && (*recorded != BestIsa() || asked != values.end())) {
      use = std::string(Name(*recorded));
    } else if (recorded == isas.end() && asked != values.end()) {
      use = "auto";  // what the run asked for is not here
    }
    if (use.empty()) return absl::OkStatus();
    set_.push_back(absl::StrCat(kInstructionSet, "=", use));
    MACAW_ASSIGN_OR_RETURN(Override override, ParseOverride(set_.back()));
    overrides_.push_back(std::move(override));
    return absl::OkStatus();
  }

  // Who was left out because of the time or of a fault follows from no configuration.
  static bool NeedsTheLog(const Trace& trace) {
    const auto devices = trace.settings.find("devices.family");
    const bool virtual_time = devices != trace.settings.end() && devices->second != "\"none\"";
    return trace.history.has_value() && !trace.history->rounds().empty() && !virtual_time &&
           (ClosesByTheClock(trace) || !trace.history->decisions().empty());
  }

  // A rule that stops the run stops it again. The run's caller or a signal does not.
  bool EndsByItself(const Trace& recorded) const {
    if (manifest_.end != "stopped") return manifest_.end == "finished";
    if (const std::string by = StoppedBy(bundle_); !by.empty()) return by == "rule";
    return std::ranges::any_of(recorded.settings, [](const auto& setting) {
      return absl::StartsWith(setting.first, "run.stop.");
    });
  }

  // The run made again evaluates its last model, whatever evaluation.every says. A run that was cut
  // there has not, so such columns of that row are no difference.
  void KeepToColumns(const Trace& recorded, Trace& made) const {
    const auto row = recorded.rows.find(manifest_.rounds);
    const auto again = made.rows.find(manifest_.rounds);
    if (row == recorded.rows.end() || again == made.rows.end()) return;
    std::erase_if(again->second, [&](const auto& one) { return !row->second.contains(one.first); });
  }

  absl::Status Simulated(const Trace& recorded, const std::string& folder,
                         const std::string& again) {
    verification_.from_log = NeedsTheLog(recorded);
    if (verification_.from_log && recorded.history->rounds().begin()->first > Round(1))
      return absl::FailedPreconditionError(
          "the bundle's log begins late, so it cannot be repeated");
    SimulateOptions simulate{.config = config_,
                             .set = set_,
                             .out = again,
                             .processes = options_.processes,
                             .slots = options_.slots,
                             .quiet = options_.quiet};
    simulate.result = false;
    simulate.evaluate_after = EvaluatedBesides(recorded, manifest_.rounds);
    if (verification_.from_log) simulate.replay = folder + "/rounds.log";
    if (verification_.from_log || !EndsByItself(recorded))
      simulate.rounds = absl::StrCat(manifest_.rounds);
    if (!recorded.clients_file.empty()) simulate.set.emplace_back("run.client_records=true");
    const int code = Simulate(simulate);
    if (code == kExitOk) return absl::OkStatus();
    if (code == kExitInterrupted) return absl::CancelledError("interrupted");
    return absl::UnavailableError(
        absl::StrCat("the run of ", bundle_.name(), " could not be made again here"));
  }

  const Bundle& bundle_;
  const Manifest& manifest_;
  const VerifyOptions& options_;
  std::string config_;
  std::vector<Override> overrides_;
  std::vector<std::string> set_;  // the same as texts
  Verification verification_;
};

void AppendLine(std::string& text, absl::string_view what, absl::string_view rest) {
  absl::StrAppendFormat(&text, "%-10s %s\n", what, OneLine(rest));
}

}  // namespace

absl::StatusOr<Verification> Verify(const Bundle& bundle, const VerifyOptions& options) {
  return Verifier(bundle, options).Run();
}

std::string VerificationText(const Bundle& bundle, const Verification& verification) {
  std::string text;
  const Manifest& manifest = bundle.manifest();
  AppendLine(text, "bundle",
             absl::StrCat(bundle.name(), ", sha256 ", bundle.sha256(), ": ",
                          Counted(bundle.files().size(), "file"), " with the right digests"));
  AppendLine(text, "run",
             absl::StrCat(manifest.name, ": ", manifest.algorithm, ", ",
                          Counted(manifest.rounds, "round"), ", ", manifest.end));
  if (verification.from_log) {
    AppendLine(text, "log",
               "who was left out of a round is as the bundle's log says; all else was "
               "computed again");
  }
  if (!verification.same_profile) {
    AppendLine(text, "profile",
               absl::StrFormat(
                   "the run had %s; here it is %s. %s, so metrics are compared with a tolerance: "
                   "|a - b| <= %g max(1, |a|, |b|)",
                   verification.profile, verification.here,
                   verification.same_bits
                       ? "The model has the same bits, and the last bits of its metrics may differ"
                       : "The last bits may differ",
                   verification.diff.tolerance));
  }
  const DiffReport& diff = verification.diff;
  if (const auto& figure = verification.figures.difference; figure.has_value()) {
    AppendLine(text, "differ",
               absl::StrCat(figure->file, ": ", figure->key, " is ", figure->stated,
                            " in the bundle and ", figure->made, " in the run made again"));
  }
  if (diff.parting.has_value()) {
    absl::StrAppend(&text, DiffText(diff));
  } else {
    // Rows and model may be the same under another figure.
    AppendLine(text, verification.same() ? "same" : "else same",
               absl::StrCat(Counted(diff.rounds, "round"), ", ", Counted(diff.columns, "metric"),
                            ", and the model ", manifest.model_digest));
  }
  AppendLine(text, "unchecked", absl::StrJoin(verification.figures.not_compared, "; "));
  return text;
}

std::string VerificationJson(const Bundle& bundle, const Verification& verification) {
  OrderedJson figure = nullptr;
  if (const auto& found = verification.figures.difference; found.has_value()) {
    figure = {{"file", found->file},
              {"key", found->key},
              {"stated", found->stated},
              {"made", found->made}};
  }
  const OrderedJson json = {{"same", verification.same()},
                            {"bundle", bundle.name()},
                            {"sha256", bundle.sha256()},
                            {"model_digest", bundle.manifest().model_digest},
                            {"profile", verification.profile},
                            {"profile_here", verification.here},
                            {"same_model", verification.same_model},
                            {"from_log", verification.from_log},
                            {"figure", std::move(figure)},
                            {"unchecked", verification.figures.not_compared},
                            {"diff", OrderedJson::parse(DiffJson(verification.diff), nullptr,
                                                        /*allow_exceptions=*/false)}};
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace macaw::cli
