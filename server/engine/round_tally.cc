#include "server/engine/round_tally.h"

#include <algorithm>

namespace macaw::server {
namespace {

template <typename T>
void SortByClient(std::vector<T>& records) {
  std::sort(records.begin(), records.end(),
            [](const T& a, const T& b) { return a.attempt.client < b.attempt.client; });
}

}  // namespace

void RoundTally::Sent(const fleet::Broadcast& broadcast, uint64_t clients) {
  for (const fleet::Blob& channel : broadcast.channels) {
    if (std::ranges::find(fetched_, channel.digest) != fetched_.end()) continue;
    fetched_.push_back(channel.digest);
    bytes_down_ += channel.least_bytes() * clients;
  }
}

void RoundTally::AddTrainedBefore(std::vector<fleet::ClientRecord>& records) {
  const auto add = [](const std::vector<double>& before, std::vector<double>& sums) {
    if (sums.size() < before.size()) sums.resize(before.size());
    for (size_t i = 0; i < before.size(); ++i) sums[i] += before[i];
  };
  for (fleet::ClientRecord& record : records) {
    Trained& trained = trained_[record.attempt.client];
    record.steps += trained.steps;
    add(trained.sums, record.sums);
    add(trained.personal_sums, record.personal_sums);
    trained = {record.steps, record.sums, record.personal_sums};
  }
}

void RoundTally::Close(PhaseReport& report, const std::optional<virtual_time::RoundTime>& time) {
  AddTrainedBefore(report.records);
  SortByClient(report.records);
  SortByClient(report.left_out);
  report.left_out_before = left_out_before_;
  left_out_before_.insert(left_out_before_.end(), report.left_out.begin(), report.left_out.end());
  for (const fleet::ClientRecord& record : report.records) bytes_up_ += record.bytes_up;
  report.bytes_up = bytes_up_;
  report.bytes_down = bytes_down_;
  if (!time.has_value()) return;
  report.virtual_time = time;
  report.clock = virtual_time::After(time->end, {.counted = report.records.size(),
                                                 .drawn = drawn_,
                                                 .bytes_up = bytes_up_,
                                                 .bytes_down = bytes_down_});
}

}  // namespace macaw::server
