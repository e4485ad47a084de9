#include "bench/scheduler/plot.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace macaw::bench {
namespace {

constexpr double kWidth = 860, kLeft = 250, kRight = 30, kRow = 17, kHead = 64, kFoot = 30;
constexpr std::array kColours = {"#9a9a9a", "#c77d2e", "#7b4fa3", "#b9a4cf",
                                 "#3f8f5b", "#b03a48", "#7fb0e0", "#1f5fa8"};

std::string Text(double x, double y, const std::string& words, int size, const char* anchor) {
  const std::string safe =
      absl::StrReplaceAll(words, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, size,
      anchor, safe);
}

std::string Line(double x1, double y1, double x2, double y2, const char* colour) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                         x1, y1, x2, y2, colour);
}

std::string Dot(double x, double y, size_t series) {
  return absl::StrFormat(
      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" fill-opacity=\"0.85\"/>\n", x, y,
      kColours[series % kColours.size()]);
}

}  // namespace

std::string DotPlot(const std::string& caption, const std::vector<std::string>& series,
                    const std::vector<DotRow>& rows, double largest) {
  const double bottom = kHead + kRow * static_cast<double>(rows.size());
  const auto x = [&](double value) {
    const double part = (std::min(value, largest) - 1) / (largest - 1);
    return kLeft + part * (kWidth - kLeft - kRight);
  };
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, bottom + kFoot);
  absl::StrAppend(&out, Text(8, 18, caption, 13, "start"));
  for (size_t s = 0; s < series.size(); ++s) {
    const double left =
        12 + static_cast<double>(s) * (kWidth - 20) / static_cast<double>(series.size());
    absl::StrAppend(&out, Dot(left, 34, s), Text(left + 8, 38, series[s], 11, "start"));
  }
  for (int tick = 0; tick <= 10; ++tick) {
    const double value = 1 + tick * (largest - 1) / 10;
    absl::StrAppend(&out, Line(x(value), kHead - 8, x(value), bottom, "#dddddd"),
                    Text(x(value), bottom + 16, absl::StrFormat("%.2f", value), 11, "middle"));
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    const double y = kHead + kRow * (static_cast<double>(r) + 0.5);
    absl::StrAppend(&out, Text(kLeft - 8, y + 4, rows[r].label, 11, "end"));
    for (size_t s = 0; s < rows[r].values.size(); ++s)
      absl::StrAppend(&out, Dot(x(rows[r].values[s]), y, s));
  }
  return out + "</svg>\n";
}

}  // namespace macaw::bench
