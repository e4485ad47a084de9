// A table as text and as CSV: the same columns, once for people and once for programs.
#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/results/result.h"
#include "cli/results/table.h"
#include "cli/results/text.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;
using State = TableRun::State;

// What people and programs see of one row in one column.
struct Cell {
  std::string text = "-", exact;
};
struct Column {
  std::string title;  // for people; "": not shown to them
  std::string csv;    // for programs; likewise
  std::vector<Cell> cells;
};

Cell Same(const std::string& text) { return {text, text}; }
Cell Exact(const std::optional<double>& value) {
  return {.exact = value.has_value() ? ExactText(*value) : ""};
}

// The columns of a table, in their order. Every statistic is named here once, for text and CSV.
class Columns {
 public:
  explicit Columns(const ResultTable& table) : table_(table) {
    const bool named =
        std::ranges::any_of(table.rows, [](const auto& row) { return !row.name.empty(); });
    if (named)
      Add("configuration", "configuration", [](const TableRow& row) { return Same(row.name); });
    for (size_t i = 0; i < table.keys.size(); ++i) {
      Add(table.keys[i], table.keys[i], [i](const TableRow& row) {
        const Json& value = row.settings[i];
        return Cell{PlainText(value), value.is_null() ? "" : PlainText(value)};
      });
    }
    if (std::ranges::find(table.rows, true, &TableRow::baseline) != table.rows.end()) {
      Add("", "baseline",
          [](const TableRow& row) { return Same(row.baseline ? "true" : "false"); });
    }
    AddRuns();
    for (size_t i = 0; i < table.metrics.size(); ++i) AddEstimate(i);
    if (table.chosen.has_value()) AddComparison();
  }

  std::vector<std::vector<std::string>> Texts() const {
    return Lines(&Column::title, [](const Cell& cell) { return cell.text; });
  }
  std::vector<std::vector<std::string>> Csv() const {
    return Lines(&Column::csv, [](const Cell& cell) { return cell.exact; });
  }

 private:
  void Add(const std::string& title, const std::string& csv,
           const std::function<Cell(const TableRow&)>& cell) {
    Column& column = columns_.emplace_back(Column{title, csv, {}});
    for (const TableRow& row : table_.rows) column.cells.push_back(cell(row));
  }

  void AddRuns() {
    const auto done = [](const TableRow& row) {
      std::vector<uint64_t> seeds;
      for (const TableRun& run : row.runs) {
        if (run.state == State::kDone) seeds.push_back(run.seed);
      }
      return seeds;
    };
    Add("runs", "runs", [&](const TableRow& row) {
      const size_t n = done(row).size();
      return Cell{n == row.runs.size() ? absl::StrCat(n) : absl::StrCat(n, " of ", row.runs.size()),
                  absl::StrCat(n)};
    });
    Add("seeds", "seeds", [&](const TableRow& row) {
      const std::vector<uint64_t> seeds = done(row);
      return Cell{seeds.empty() ? "-" : SeedsText(seeds), absl::StrJoin(seeds, " ")};
    });
    Add("", "failed", [](const TableRow& row) {
      return Same(absl::StrCat(std::ranges::count(row.runs, State::kFailed, &TableRun::state)));
    });
    Add(table_.halved ? "rounds" : "", "rounds",
        [](const TableRow& row) { return Same(absl::StrCat(row.rounds)); });
  }

  void AddEstimate(size_t metric) {
    const std::string& name = table_.metrics[metric];
    const auto of = [metric](const TableRow& row) { return row.values[metric]; };
    const bool is_target = IsTarget(name);
    Add(name, name, [&](const TableRow& row) {
      const Estimate value = of(row);
      const size_t could = is_target ? row.could_reach(name) : 0;
      if (value.n == 0) return could > 0 ? Cell{"not reached", ""} : Cell{};
      std::string text = NumberText(value);
      if (value.n < could) absl::StrAppend(&text, " (", value.n, " of ", could, ")");
      return Cell{std::move(text), Exact(value.mean).exact};
    });
    if (is_target) {
      Add("", name + "_reached", [&](const TableRow& row) {
        const bool never = row.done() > 0 && row.could_reach(name) == 0;
        return never ? Cell{} : Same(absl::StrCat(of(row).n));
      });
    }
    Add("", name + "_std", [&](const TableRow& row) { return Exact(of(row).std); });
    AddInterval(table_.chosen == metric && table_.several_seeds() ? "95 % interval" : "", name,
                [&](const TableRow& row) { return of(row).interval; });
  }

  void AddInterval(const std::string& title, const std::string& name,
                   const std::function<std::optional<Interval>(const TableRow&)>& of) {
    if (!title.empty())
      Add(title, "", [&](const TableRow& row) { return Same(IntervalText(of(row))); });
    Add("", name + "_low", [&](const TableRow& row) {
      const std::optional<Interval> interval = of(row);
      return Exact(interval.has_value() ? std::optional(interval->low) : std::nullopt);
    });
    Add("", name + "_high", [&](const TableRow& row) {
      const std::optional<Interval> interval = of(row);
      return Exact(interval.has_value() ? std::optional(interval->high) : std::nullopt);
    });
  }

  void AddComparison() {
    const bool shown = table_.paired();
    const auto title = [shown](const char* text) { return std::string(shown ? text : ""); };
    const auto probability = [](const std::optional<double>& p) {
      return Cell{ProbabilityText(p), Exact(p).exact};
    };
    Add(title("minus the best"), "minus_best", [](const TableRow& row) {
      if (!row.against_best.has_value()) return Cell{};
      const double difference = row.against_best->difference;
      return Cell{MetricText(difference), Exact(difference).exact};
    });
    AddInterval(title("95 % interval"), "minus_best", [](const TableRow& row) {
      return row.against_best.has_value() ? row.against_best->interval : std::nullopt;
    });
    Add(title("p"), "p", [&](const TableRow& row) {
      return probability(row.against_best.has_value() ? row.against_best->p : std::nullopt);
    });
    Add(title("p, Holm"), "p_holm", [&](const TableRow& row) { return probability(row.p_holm); });
  }

  std::vector<std::vector<std::string>> Lines(
      std::string Column::*head, const std::function<std::string(const Cell&)>& text) const {
    std::vector<std::vector<std::string>> lines(1 + table_.rows.size());
    for (const Column& column : columns_) {
      if ((column.*head).empty()) continue;
      lines[0].push_back(column.*head);
      for (size_t i = 0; i < column.cells.size(); ++i)
        lines[1 + i].push_back(text(column.cells[i]));
    }
    return lines;
  }

  const ResultTable& table_;
  std::vector<Column> columns_;
};

std::vector<std::vector<std::string>> Transposed(
    const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::vector<std::string>> columns(lines.front().size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) columns[i].push_back(line[i]);
  }
  return columns;
}

}  // namespace

std::string TableText(const ResultTable& table) {
  std::vector<std::vector<std::string>> lines = Columns(table).Texts();
  if (table.rows.size() == 1) lines = Transposed(lines);
  std::string text = AlignedText(lines);
  for (const TableRow& row : table.rows) {
    for (const TableRun& run : row.runs) {
      if (run.state == State::kFailed)
        absl::StrAppend(&text, "failed: ", run.name, ": ", run.why, "\n");
    }
  }
  if (!table.equal.empty())
    absl::StrAppend(&text, "the same in all: ", absl::StrJoin(table.equal, ", "), "\n");
  for (const std::string& note : table.notes) absl::StrAppend(&text, note, "\n");
  return text;
}

std::string TableCsv(const ResultTable& table) {
  std::string text;
  for (const std::vector<std::string>& line : Columns(table).Csv())
    absl::StrAppend(&text, CsvLine(line));
  return text;
}

std::string PlainText(const Json& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace macaw::cli
