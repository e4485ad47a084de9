#include "sdk/rules/interpreter.h"

#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/clock.h"
#include "core/python.h"
#include "core/status.h"
#include "sdk/rules/runtime.h"

namespace macaw::sdk::rules {
namespace {

constexpr double kLoadSeconds = 300;  // imports of a large library from a cold disk
constexpr double kForkSeconds = 60;   // of an interpreter that has much memory
constexpr size_t kMostFiles = 4;      // descriptors with a message
constexpr size_t kLongestAnswer = 1 << 26;

// What the interpreter runs first: it makes the modules macaw.rules and macaw._rules of what is in
// the program, beside an installed package macaw or without one.
constexpr char kBoot[] = R"(
import importlib.util, json, os, sys, types
rules, runtime, control, text = map(int, sys.argv[1:5])
path = sys.argv[5]
sys.path[:] = [p for p in sys.path if p]
def module(name, file):
    made = sys.modules[name] = types.ModuleType(name)
    with os.fdopen(file, encoding="utf-8") as source:
        exec(compile(source.read(), name.replace(".", "/") + ".py", "exec"), made.__dict__)
    return made
try:
    if sys.version_info < (3, 10):
        raise ImportError("it is Python " + sys.version.split()[0])
    made = module("macaw.rules", rules)
    if importlib.util.find_spec("macaw") is None:
        sys.modules["macaw"] = types.ModuleType("macaw")
        sys.modules["macaw"].rules = made
    runtime = module("macaw._rules", runtime)
except ImportError as error:
    os.write(control, (json.dumps({"missing": str(error)}) + "\n").encode())
    sys.exit(1)
sys.argv[:] = [path]
runtime.serve(control, text, path)
)";

enum class Heard : uint8_t { kAnswer, kEnd, kLate };

void SetTimeout(const Fd& channel) {
  const timeval second = {.tv_sec = 1, .tv_usec = 0};
  (void)::setsockopt(channel.get(), SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
}

// Sends a line, with descriptors on its first byte. False: the other end is gone.
bool Send(const Fd& channel, absl::string_view line, std::span<const int> files) {
  size_t sent = 0;
  if (!files.empty()) {
    iovec part = {const_cast<char*>(line.data()), line.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
    ssize_t first;
    do {
      first = ::sendmsg(channel.get(), &message, MSG_NOSIGNAL);
    } while (first < 0 && errno == EINTR);
    if (first < 0) return false;
    sent = static_cast<size_t>(first);
  }
  while (sent < line.size()) {
    const ssize_t more =
        ::send(channel.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (more < 0 && errno != EINTR) return false;
    if (more > 0) sent += static_cast<size_t>(more);
  }
  return true;
}

// Waits until something has come, or for a millisecond; any thread that can work has the processor
// meanwhile. A processor that idles takes several times as long to wake as a short answer takes.
void YieldUntilHeard(const Fd& channel) {
  const TimePoint end = SteadyClock().Now() + FromSeconds(1e-3);
  char byte;
  while (::recv(channel.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN &&
         SteadyClock().Now() < end) {
    ::sched_yield();
  }
}

// Keeps a process on the processor of the calling thread, which waits while the process works.
// `processor`: where it is kept. A kernel that refuses costs time and nothing else.
void Bring(pid_t pid, int& processor) {
  const int here = ::sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE || here == processor) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(here, &only);
  if (::sched_setaffinity(pid, sizeof(only), &only) == 0) processor = here;
}

// Waits for a line. The channel has SetTimeout.
Heard Receive(const Fd& channel, double seconds, std::string& line) {
  const TimePoint deadline = SteadyClock().Now() + FromSeconds(seconds);
  char piece[1 << 16];
  line.clear();
  while (line.size() < kLongestAnswer) {
    const ssize_t got = ::recv(channel.get(), piece, sizeof(piece), 0);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return Heard::kEnd;
    if (got > 0) line.append(piece, static_cast<size_t>(got));
    if (!line.empty() && line.back() == '\n') return Heard::kAnswer;
    if (got < 0 && SteadyClock().Now() >= deadline) return Heard::kLate;
  }
  return Heard::kEnd;
}

std::string LineOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Json> Parse(absl::string_view line) {
  Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  constexpr size_t kShown = 200;
  return absl::InternalError(
      absl::StrCat("its process answered what cannot be understood: ", line.substr(0, kShown)));
}

struct Ends {
  Fd ours, theirs;
};
absl::StatusOr<Ends> MakeChannel() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::ErrnoToStatus(errno, "cannot make a channel to the rule's process");
  Ends channel{Fd(ends[0]), Fd(ends[1])};
  SetTimeout(channel.ours);
  return channel;
}

// A slot is a core: libraries that start threads of their own would fight over it. What the
// environment says comes first.
std::vector<std::pair<std::string, std::string>> OneThreadEach() {
  std::vector<std::pair<std::string, std::string>> added;
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    if (::getenv(name) == nullptr) added.emplace_back(name, "1");
  }
  return added;
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
  MACAW_ASSIGN_OR_RETURN(const Fd rules, MemoryFile(kRules));
  MACAW_ASSIGN_OR_RETURN(const Fd runtime, MemoryFile(kRuntime));
  MACAW_ASSIGN_OR_RETURN(const Fd source, MemoryFile(text));
  MACAW_ASSIGN_OR_RETURN(Ends control, MakeChannel());
  ChildSpec spec;
  spec.name = python;
  spec.argv = {python,
               "-c",
               kBoot,
               absl::StrCat(rules.get()),
               absl::StrCat(runtime.get()),
               absl::StrCat(control.theirs.get()),
               absl::StrCat(source.get()),
               path};
  spec.output = STDERR_FILENO;
  spec.environment = OneThreadEach();
  spec.inherit = {rules.get(), runtime.get(), control.theirs.get(), source.get()};
  absl::StatusOr<Child> child = Child::Spawn(spec);
  if (!child.ok()) return NeedsPython(child.status().message());
  control.theirs.Close();

  std::shared_ptr<Interpreter> interpreter(
      new Interpreter(*std::move(child), std::move(control.ours)));
  absl::MutexLock lock(&interpreter->mutex_);
  std::string line;
  const Heard heard = Receive(interpreter->control_, kLoadSeconds, line);
  if (heard == Heard::kLate)
    return absl::InternalError(absl::StrFormat("has not been loaded after %g s", kLoadSeconds));
  if (heard == Heard::kEnd) {
    return absl::InternalError(absl::StrCat(
        python, " ended while it loaded the file: ", interpreter->child_.Reap().Text()));
  }
  MACAW_ASSIGN_OR_RETURN(Json said, Parse(line));
  if (said.contains("missing"))
    return NeedsPython(absl::StrCat(python, ": ", said["missing"].get<std::string>()));
  if (said.contains("error")) return absl::InvalidArgumentError(said["error"].get<std::string>());
  interpreter->rules_ = std::move(said["rules"]);
  return interpreter;
}

absl::StatusOr<Json> Interpreter::Ask(const Json& question, std::span<const int> files) {
  std::string line;
  if (!Send(control_, LineOf(question), files) ||
      Receive(control_, kForkSeconds, line) != Heard::kAnswer) {
    return absl::InternalError("its interpreter has ended, or does not answer");
  }
  return Parse(line);
}

absl::StatusOr<Interpreter::Forked> Interpreter::Fork() {
  MACAW_ASSIGN_OR_RETURN(Ends channel, MakeChannel());
  absl::MutexLock lock(&mutex_);
  const int theirs = channel.theirs.get();
  MACAW_ASSIGN_OR_RETURN(const Json forked, Ask({{"do", "fork"}}, std::span(&theirs, 1)));
  return Forked{forked.at("pid").get<pid_t>(), std::move(channel.ours)};
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

Crew::Crew(std::shared_ptr<Interpreter> interpreter, Json opening, double seconds)
    : interpreter_(std::move(interpreter)), opening_(std::move(opening)), seconds_(seconds) {}

Crew::~Crew() = default;

absl::StatusOr<Json> Crew::Call(Process& process, const Json& question,
                                std::span<const int> files) {
  std::string line;
  Heard heard = Heard::kEnd;
  if (Send(process.channel, LineOf(question), files)) {
    YieldUntilHeard(process.channel);
    heard = Receive(process.channel, seconds_, line);
  }
  switch (heard) {
    case Heard::kEnd:
      return absl::InternalError(
          absl::StrCat(question["do"].get<std::string>(),
                       ": its process ended: ", interpreter_->HowEnded(process.pid)));
    case Heard::kLate:
      ::kill(process.pid, SIGKILL);
      return absl::InternalError(
          absl::StrFormat("%s took longer than %g s (the rule's `seconds`) and was killed",
                          question["do"].get<std::string>(), seconds_));
    case Heard::kAnswer:
      break;
  }
  return Parse(line);
}

absl::StatusOr<std::unique_ptr<Crew::Process>> Crew::Take(Json* opened) {
  if (opened == nullptr) {
    absl::MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Process> process = std::move(idle_.back());
      idle_.pop_back();
      return process;
    }
  }
  MACAW_ASSIGN_OR_RETURN(Interpreter::Forked forked, interpreter_->Fork());
  auto process = std::make_unique<Process>();
  process->pid = forked.pid;
  process->channel = std::move(forked.channel);
  MACAW_ASSIGN_OR_RETURN(Json answer, Call(*process, opening_, {}));
  if (answer.contains("error")) return absl::InternalError(answer["error"].get<std::string>());
  if (opened != nullptr) *opened = std::move(answer);
  return process;
}

absl::StatusOr<Json> Crew::Open() {
  Json opened;
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<Process> process, Take(&opened));
  absl::MutexLock lock(&mutex_);
  idle_.push_back(std::move(process));
  return opened;
}

absl::StatusOr<Json> Crew::Ask(Json question, std::span<const Arena* const> arenas,
                               const LocalConfig* local) {
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<Process> process, Take(nullptr));
  std::vector<int> files;
  for (const Arena* arena : arenas) {
    if (!process->arenas.insert(arena->id()).second) continue;
    question["new"].push_back(arena->description());
    files.push_back(arena->file());
  }
  if (!process->gone.empty()) question["gone"] = std::exchange(process->gone, {});
  if (local != nullptr) Bring(process->pid, process->processor);
  if (local != nullptr && process->local != *local) {
    question["local"] = ToJson(*local);
    process->local = *local;
  }
  MACAW_ASSIGN_OR_RETURN(Json answer, Call(*process, question, files));  // else the process is gone
  {
    absl::MutexLock lock(&mutex_);
    idle_.push_back(std::move(process));
  }
  if (answer.contains("error"))
    return absl::InvalidArgumentError(answer["error"].get<std::string>());
  return answer;
}

void Crew::Forget(const Arena& arena) {
  absl::MutexLock lock(&mutex_);
  for (const std::unique_ptr<Process>& process : idle_) {
    if (process->arenas.erase(arena.id()) > 0) process->gone.push_back(arena.id());
  }
}

Json ToJson(const settings::Value& value) {
  return std::visit(
      [](const auto& data) -> Json {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, settings::Array>) {
          Json array = Json::array();
          for (const settings::Value& item : data) array.push_back(ToJson(item));
          return array;
        } else if constexpr (std::is_same_v<T, std::monostate> ||
                             std::is_same_v<T, settings::Table>) {
          return nullptr;
        } else {
          return data;
        }
      },
      value.data);
}

Json ToJson(const LocalConfig& local) {
  static const settings::Section<LocalConfig> section = LocalSection();
  Json json = Json::object();
  for (const settings::Field<LocalConfig>& field : section.fields()) {
    if (absl::StartsWith(field.key, "lr_schedule.")) continue;
    const std::optional<settings::Value> value = field.get(local);
    json[field.key] = value.has_value() ? ToJson(*value) : Json::array();  // an empty list
  }
  return json;
}

}  // namespace macaw::sdk::rules
