#include "sdk/rules/interpreter.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/child.h"
#include "core/peer/program.h"
#include "core/python.h"
#include "core/status.h"
#include "sdk/rules/modules.h"

namespace macaw::sdk::rules {
namespace {

constexpr double kLoadSeconds = 300;  // imports of a large library from a cold disk
constexpr double kForkSeconds = 60;   // of an interpreter that has much memory
constexpr size_t kLongestAnswer = 1 << 26;

// What the interpreter runs first: it makes modules of macaw of the texts in the program, each of
// which imports only those before it, beside an installed package macaw or without one. Arguments:
// the descriptors of the texts and of the rule's file, and its path.
constexpr char kBoot[] = R"(
import importlib.util, json, os, sys, types
texts, text = map(int, sys.argv[1:3])
path = sys.argv[3]
control = int(os.environ.pop("MACAW_CHANNEL"))
sys.path[:] = [p for p in sys.path if p]
with os.fdopen(texts, encoding="utf-8") as file:
    sources = dict(json.load(file))
def module(name):
    made = sys.modules["macaw." + name] = types.ModuleType("macaw." + name)
    exec(compile(sources.pop(name), "macaw/" + name + ".py", "exec"), made.__dict__)
    return made
try:
    if sys.version_info < (3, 10):
        raise ImportError("it is Python " + sys.version.split()[0])
    alone = importlib.util.find_spec("macaw") is None
    if alone:
        sys.modules["macaw"] = types.ModuleType("macaw")
    for name in list(sources):
        runtime = module(name)
        if alone:
            setattr(sys.modules["macaw"], name, runtime)
except ImportError as error:
    os.write(control, (json.dumps({"missing": str(error)}) + "\n").encode())
    sys.exit(1)
sys.argv[:] = [path]
runtime.serve(control, text, path)
)";

// A process that the interpreter has forked, and whose end only the interpreter can tell.
class ForkedProcess final : public peer::Process {
 public:
  ForkedProcess(std::shared_ptr<Interpreter> interpreter, pid_t pid, Fd watched)
      : interpreter_(std::move(interpreter)), pid_(pid), watched_(std::move(watched)) {}

  int ended() const override { return watched_.get(); }
  void Kill() override { KillWatched(watched_); }
  std::string Reap() override { return interpreter_->HowEnded(pid_); }

 private:
  const std::shared_ptr<Interpreter> interpreter_;
  const pid_t pid_;
  const Fd watched_;
};

// A slot is a core: libraries that start threads of their own would fight over it. What the
// environment says comes first.
std::vector<std::pair<std::string, std::string>> OneThreadEach() {
  std::vector<std::pair<std::string, std::string>> added;
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    if (::getenv(name) == nullptr) added.emplace_back(name, "1");
  }
  return added;
}

absl::StatusOr<Fd> Texts() {
  Json texts = Json::array();
  for (const PythonModule& module : kRuleModules) texts.push_back({module.name, module.text});
  return MemoryFile(texts.dump());
}

absl::Status NeedsPython(absl::string_view found) {
  return absl::FailedPreconditionError(
      absl::StrCat("a rule in Python needs Python 3.10 or later with NumPy, and ", found,
                   "; name one that has it in MACAW_PYTHON"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Interpreter>> Interpreter::Start(const std::string& path,
                                                                absl::string_view text) {
  const absl::StatusOr<std::string> found = FindPython();
  if (!found.ok()) return NeedsPython(found.status().message());
  const std::string& python = *found;
  MACAW_ASSIGN_OR_RETURN(const Fd texts, Texts());
  MACAW_ASSIGN_OR_RETURN(const Fd source, MemoryFile(text));
  ChildSpec spec{
      .name = python,
      .argv = {python, "-c", kBoot, absl::StrCat(texts.get()), absl::StrCat(source.get()), path},
      .output = STDERR_FILENO,
      .environment = OneThreadEach(),
      .inherit = {texts.get(), source.get()}};
  absl::StatusOr<std::unique_ptr<peer::Peer>> control =
      peer::Start(std::move(spec), {.name = python, .longest_answer = kLongestAnswer});
  if (!control.ok()) return NeedsPython(control.status().message());

  std::shared_ptr<Interpreter> interpreter(new Interpreter(*std::move(control)));
  absl::MutexLock lock(&interpreter->mutex_);
  const absl::StatusOr<std::string> line = interpreter->control_->Hear({kLoadSeconds, ""});
  if (!line.ok()) return Annotate(line.status(), "loading the file");
  MACAW_ASSIGN_OR_RETURN(Json said, peer::ObjectIn(*line, python));
  if (said.contains("missing"))
    return NeedsPython(absl::StrCat(python, ": ", said["missing"].get<std::string>()));
  if (said.contains("error")) return absl::InvalidArgumentError(said["error"].get<std::string>());
  interpreter->rules_ = std::move(said["rules"]);
  return interpreter;
}

absl::StatusOr<Json> Interpreter::Ask(const Json& question, std::span<const int> files) {
  MACAW_ASSIGN_OR_RETURN(const std::string line,
                         control_->Ask(peer::LineOf(question), {kForkSeconds, ""}, files));
  return peer::ObjectIn(line, kPeerName);
}

absl::StatusOr<Interpreter::Forked> Interpreter::Fork() {
  MACAW_ASSIGN_OR_RETURN(peer::Channel::Ends channel, peer::Channel::Make());
  absl::MutexLock lock(&mutex_);
  const int theirs = channel.theirs.get();
  MACAW_ASSIGN_OR_RETURN(const Json forked, Ask({{"do", "fork"}}, std::span(&theirs, 1)));
  const auto pid = forked.at("pid").get<pid_t>();
  MACAW_ASSIGN_OR_RETURN(Fd watched, Watch(pid));
  return Forked{
      pid,
      std::make_unique<peer::Peer>(
          peer::Peer::Options{.name = kPeerName, .longest_answer = kLongestAnswer, .yields = true},
          std::move(channel.ours),
          std::make_unique<ForkedProcess>(shared_from_this(), pid, std::move(watched)))};
}

std::string Interpreter::HowEnded(pid_t pid) {
  absl::MutexLock lock(&mutex_);
  const absl::StatusOr<Json> ended = Ask({{"do", "end"}, {"pid", pid}}, {});
  if (!ended.ok()) return std::string(ended.status().message());
  Exit exit;
  exit.code = ended->at("code").get<int>();
  exit.signal = ended->at("signal").get<int>();
  return exit.Text();
}

}  // namespace macaw::sdk::rules
