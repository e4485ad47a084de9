#include "cli/simulate/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace macaw::cli {
namespace {

constexpr Duration kWindow = std::chrono::seconds(10);
constexpr Duration kSample = std::chrono::milliseconds(50);
constexpr Duration kRedraw = std::chrono::milliseconds(100);
constexpr Duration kPlainLine = std::chrono::seconds(1);

std::optional<double> NumberAt(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// Three significant digits, without an exponent: "0.83", "12.3", "1230".
std::string RateText(double rate) {
  if (rate >= 100) return absl::StrFormat("%.0f", rate);
  return rate >= 10 ? absl::StrFormat("%.1f", rate) : absl::StrFormat("%.2f", rate);
}

}  // namespace

size_t TerminalWidth() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void WriteToStandardError(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string ClockText(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  const int64_t hours = total / 3600, minutes = total / 60 % 60, rest = total % 60;
  return hours > 0 ? absl::StrFormat("%d:%02d:%02d", hours, minutes, rest)
                   : absl::StrFormat("%d:%02d", minutes, rest);
}

Progress::Progress(ProgressOptions options, const Clock& clock,
                   std::function<void(absl::string_view)> write)
    : options_(options), clock_(clock), write_(std::move(write)) {}

bool Progress::OnRow(absl::string_view text) {
  const nlohmann::json row =
      nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return false;
  const std::optional<double> round = NumberAt(row, "round");
  if (!round.has_value() || *round < 0 || *round <= round_) return false;
  round_ = static_cast<uint32_t>(*round);
  if (const auto loss = NumberAt(row, "train_loss")) loss_ = loss;
  if (const auto accuracy = NumberAt(row, "test_accuracy")) accuracy_ = accuracy;
  if (const auto left_out = NumberAt(row, "left_out"); left_out.has_value() && *left_out > 0)
    left_out_ += static_cast<uint64_t>(*left_out);

  const TimePoint now = clock_.Now();
  if (window_.empty() || now - window_.back().first >= kSample) window_.emplace_back(now, round_);
  while (window_.size() > 2 && now - window_[1].first > kWindow) window_.pop_front();
  undrawn_ = true;
  const Duration pause = options_.terminal ? kRedraw : kPlainLine;
  if (!drawn_at_.has_value() || now - *drawn_at_ >= pause || round_ >= options_.rounds) Draw();
  return true;
}

void Progress::Say(absl::string_view message) {
  if (live_) write_("\r\x1b[K");
  live_ = false;
  write_(absl::StrCat(message, "\n"));
  if (options_.terminal && round_ > 0) Draw();
}

void Progress::Finish() {
  if (undrawn_) Draw();
  if (live_) write_("\n");
  live_ = false;
}

double Progress::RoundsPerSecond() const {
  if (window_.size() < 2) return 0;
  const double seconds = ToSeconds(window_.back().first - window_.front().first);
  return seconds > 0 ? (window_.back().second - window_.front().second) / seconds : 0;
}

std::string Progress::Line(size_t room) const {
  // In the order shown. The part with the largest rank is left out first.
  struct Part {
    std::string text;
    int rank;
  };
  std::vector<Part> parts = {{absl::StrCat("round ", round_, "/", options_.rounds), 0}};
  if (loss_.has_value()) parts.push_back({absl::StrFormat("loss %.4f", *loss_), 4});
  if (accuracy_.has_value()) parts.push_back({absl::StrFormat("accuracy %.4f", *accuracy_), 3});
  if (left_out_ > 0) parts.push_back({absl::StrCat(left_out_, " left out"), 2});
  const double rate = RoundsPerSecond();
  if (rate > 0) {
    parts.push_back({absl::StrCat(RateText(rate), " rounds/s"), 5});
    if (options_.cohort > 0) {
      const double clients = rate * static_cast<double>(options_.cohort);
      parts.push_back({absl::StrCat(RateText(clients), " clients/s"), 6});
    }
    const uint32_t left = options_.rounds - std::min(options_.rounds, round_);
    parts.push_back({absl::StrCat("ETA ", ClockText(left / rate)), 1});
  }
  const auto text = [&] {
    return absl::StrJoin(parts, "  ",
                         [](std::string* out, const Part& part) { out->append(part.text); });
  };
  while (text().size() > room && parts.size() > 1)
    parts.erase(std::ranges::max_element(parts, {}, &Part::rank));
  return text().substr(0, room);
}

void Progress::Draw() {
  undrawn_ = false;
  drawn_at_ = clock_.Now();
  if (options_.quiet) return;
  if (!options_.terminal) {
    write_(Line() + "\n");
    return;
  }
  // One column stays free, or the terminal would wrap and the next redraw would miss the line.
  const size_t width = options_.width();
  write_(absl::StrCat("\r", Line(width > 0 ? width - 1 : 0), "\x1b[K"));
  live_ = true;
}

}  // namespace macaw::cli
