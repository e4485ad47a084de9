#include "cli/standing/queue_page.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/standing/queue_page_html.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

constexpr size_t kShown = 200;  // runs on the page

constexpr QueuedState kQueuedStates[] = {QueuedState::kWaiting,  QueuedState::kRunning,
                                         QueuedState::kFinished, QueuedState::kInterrupted,
                                         QueuedState::kFailed,   QueuedState::kWithdrawn};

std::string Escaped(absl::string_view words) {
  return absl::StrReplaceAll(words,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string MinuteText(absl::Time time) {
  if (time == absl::InfinitePast()) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M", time, absl::LocalTimeZone());
}

std::string RowOf(const QueuedRun& run) {
  return absl::StrCat("<tr><td>", Escaped(run.name), "</td><td><span class=\"", NameOf(run.state),
                      "\">", NameOf(run.state), "</span></td><td>", Escaped(run.by), "</td><td>",
                      MinuteText(run.submitted), "</td><td>", MinuteText(run.began), "</td><td>",
                      MinuteText(run.ended), "</td><td>", Escaped(run.why), "</td></tr>\n");
}

}  // namespace

std::string QueueHtml(const std::vector<QueuedRun>& runs, const std::string& run_page) {
  std::string rows, now = "no run is open";
  for (const QueuedRun& run : runs) {
    if (run.state == QueuedState::kRunning) {
      now = absl::StrCat("the run ", Escaped(run.name), " is open",
                         run_page.empty() ? "" : absl::StrCat("; its page: ", Escaped(run_page)));
    }
  }
  const auto waiting = std::ranges::count(runs, QueuedState::kWaiting, &QueuedRun::state);
  absl::StrAppend(&now, ", ", waiting, waiting == 1 ? " waits" : " wait");
  for (size_t i = runs.size(); i > 0 && runs.size() - i < kShown; --i) rows += RowOf(runs[i - 1]);
  if (runs.empty()) rows = "<tr><td colspan=\"7\">no run was submitted</td></tr>\n";
  if (runs.size() > kShown) {
    absl::StrAppend(&rows, "<tr><td colspan=\"7\">the newest ", kShown, " of ", runs.size(),
                    " runs; /runs.json has all</td></tr>\n");
  }
  return absl::StrReplaceAll(kQueueHtml, {{"{now}", now}, {"{rows}", rows}});
}

std::string QueueMetrics(const std::vector<QueuedRun>& runs) {
  std::string text =
      "# HELP macaw_standing_runs Runs of this standing server\n"
      "# TYPE macaw_standing_runs gauge\n";
  for (const QueuedState state : kQueuedStates) {
    absl::StrAppend(&text, "macaw_standing_runs{state=\"", NameOf(state), "\"} ",
                    std::ranges::count(runs, state, &QueuedRun::state), "\n");
  }
  absl::StrAppend(&text, "# HELP macaw_standing_run_begun_timestamp_seconds When the open run was ",
                  "begun\n# TYPE macaw_standing_run_begun_timestamp_seconds gauge\n");
  for (const QueuedRun& run : runs) {  // a run's name needs no escape (CheckRunName)
    if (run.state != QueuedState::kRunning) continue;
    absl::StrAppend(&text, "macaw_standing_run_begun_timestamp_seconds{run=\"", run.name, "\"} ",
                    absl::ToUnixSeconds(run.began), "\n");
  }
  return text;
}

absl::StatusOr<std::unique_ptr<QueuePage>> QueuePage::Start(const PageAddress& address,
                                                            std::string run_page,
                                                            const RunQueue& queue) {
  std::unique_ptr<QueuePage> page(new QueuePage(address.token, std::move(run_page), queue));
  absl::StatusOr<std::unique_ptr<http::PageServer>> server = http::PageServer::Start(
      address.host, address.port,
      [self = page.get()](const http::PageRequest& request) { return self->AnswerTo(request); });
  if (!server.ok()) return Annotate(server.status(), "--http");
  page->server_ = *std::move(server);
  return page;
}

http::PageReply QueuePage::AnswerTo(const http::PageRequest& request) const {
  if (auto refusal = gate_.Refusal(request); refusal.has_value()) return *std::move(refusal);
  if (request.path == "/")
    return {.type = "text/html; charset=utf-8", .body = QueueHtml(queue_.runs(), run_page_)};
  if (request.path == "/runs.json")
    return {.type = "application/json", .body = JsonOf(queue_.runs())};
  if (request.path == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8",
            .body = QueueMetrics(queue_.runs())};
  }
  return {.status = 404, .body = "there is no such page\n"};
}

}  // namespace macaw::cli
