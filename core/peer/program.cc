#include "core/peer/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/logging.h"
#include "core/status.h"
#include "core/utf8.h"

namespace macaw::peer {
namespace {

constexpr size_t kLongestPrinted = 1 << 12;  // bytes; a longer line is cut into several
constexpr size_t kLastLines = 6;             // that say why it ended
constexpr int kMostPieces = 16;              // of output, between two looks at the channel

class Program final : public Process {
 public:
  Program(Child child, Fd output, std::string prefix)
      : child_(std::move(child)), output_(std::move(output)), prefix_(std::move(prefix)) {}

  int ended() const override { return child_.pidfd(); }
  int output() const override { return output_.get(); }
  void Kill() override { child_.Kill(); }

  void ReadOutput() override {
    std::array<char, 1 << 16> piece;
    for (int i = 0; i < kMostPieces && output_.open(); ++i) {
      const ssize_t got = ::read(output_.get(), piece.data(), piece.size());
      if (got < 0) return;
      if (got == 0) output_.Close();
      printed_.append(piece.data(), static_cast<size_t>(got));
      const std::vector<std::string> lines = absl::StrSplit(printed_, '\n');
      for (size_t line = 0; line + 1 < lines.size(); ++line) Print(lines[line]);
      printed_ = lines.back();
      if (printed_.size() > kLongestPrinted) Print(std::exchange(printed_, ""));
    }
  }

  std::string Reap() override {
    Exit exit = child_.Reap();
    ReadOutput();
    Print(std::exchange(printed_, ""));
    // The end of a trace, its last line first, since long messages are cut at their end.
    if (exit.code != 0) {
      std::ranges::reverse(last_lines_);
      exit.words = absl::StrJoin(last_lines_, " | ");
    }
    return exit.Text();
  }

 private:
  void Print(absl::string_view printed) {
    printed = absl::StripTrailingAsciiWhitespace(printed);
    if (printed.empty()) return;
    const std::string line = IsUtf8(printed) ? std::string(printed) : EscapeToUtf8(printed);
    last_lines_.emplace_back(absl::StripLeadingAsciiWhitespace(line));
    if (last_lines_.size() > kLastLines) last_lines_.pop_front();
    Logger("program").Info(absl::StrCat(prefix_, line));
  }

  Child child_;
  Fd output_;
  const std::string prefix_;
  std::string printed_;  // the beginning of a line
  std::deque<std::string> last_lines_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Peer>> Start(ChildSpec spec, Peer::Options options,
                                            std::string prefix) {
  MACAW_ASSIGN_OR_RETURN(Channel::Ends channel, Channel::Make());
  PipePair output;
  if (spec.output < 0) {
    MACAW_ASSIGN_OR_RETURN(output, MakePipe());
    (void)::fcntl(output.read.get(), F_SETFL, O_NONBLOCK);
    spec.output = output.write.get();
  }
  spec.argv.front() = FindOnPath(spec.argv.front());
  spec.environment.emplace_back("MACAW_CHANNEL", absl::StrCat(channel.theirs.get()));
  spec.inherit.push_back(channel.theirs.get());
  MACAW_ASSIGN_OR_RETURN(Child child, Child::Spawn(spec));
  return std::make_unique<Peer>(
      std::move(options), std::move(channel.ours),
      std::make_unique<Program>(std::move(child), std::move(output.read), std::move(prefix)));
}

}  // namespace macaw::peer
