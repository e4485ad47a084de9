#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "aggregation/device_sum.h"
#include "tests/aggregation/cohort.h"

// The sum of a cohort by the host and by a device, to be compared.
namespace macaw::aggregation {

// Clients' vectors on a device, as a trainer leaves them.
class OnDevice {
 public:
  OnDevice(device::Device& device, device::Queue& queue, std::span<const TestClient> clients)
      : clients_(clients) {
    for (const TestClient& client : clients) {
      std::vector<DeviceContribution::Value>& values = values_.emplace_back();
      for (const FlatVector& vector : client.vectors) {
        if (vector.layout()->dtype() != DType::kF32) {
          values.push_back({.on_host = vector.view()});
          continue;
        }
        device::Memory memory = *device.Allocate(vector.layout()->bytes());
        queue.CopyIn(memory.data(), vector.view().bytes);
        // Both, because a vector that is collected stays on the host.
        values.push_back({.on_device = memory.As<float>(), .on_host = vector.view()});
        memories_.push_back(std::move(memory));
      }
    }
  }
  // Vectors on the device become (vector − minus)·factor.
  void Describe(size_t client, const float* minus, float factor) {
    for (DeviceContribution::Value& value : values_[client]) {
      value.minus = minus;
      value.factor = factor;
    }
  }
  std::vector<DeviceContribution> Of(size_t begin, size_t end) const {
    std::vector<DeviceContribution> all;
    for (size_t i = begin; i < end; ++i)
      all.push_back({clients_[i].id, clients_[i].weight, clients_[i].multiplicity, values_[i]});
    return all;
  }

 private:
  std::span<const TestClient> clients_;
  std::vector<std::vector<DeviceContribution::Value>> values_;
  std::vector<device::Memory> memories_;
};

// What both sums answered, and the bytes of the sums themselves.
struct SumResult {
  std::vector<absl::Status> answers;
  std::vector<std::byte> bytes;
};

inline SumResult HostSum(const TestCohort& cohort) {
  SumResult result;
  ExactSum sum = cohort.Empty();
  for (const TestClient& client : cohort.clients) result.answers.push_back(client.AddTo(sum));
  result.bytes = Bytes(sum);
  return result;
}

// Adds `group` clients a call, settles every other call.
inline SumResult DeviceResult(device::Device& device, const TestCohort& cohort, size_t group) {
  SumResult result;
  const std::unique_ptr<device::Queue> queue = *device.MakeQueue();
  const OnDevice vectors(device, *queue, cohort.clients);
  auto sum = *DeviceSum::Make(device, *queue, cohort.channels, cohort.order,
                              static_cast<uint32_t>(2 * group));
  const size_t count = cohort.clients.size();
  const auto settle = [&] {
    const absl::StatusOr<std::vector<absl::Status>> answers = sum->Settle();
    ASSERT_TRUE(answers.ok()) << answers.status();
    result.answers.insert(result.answers.end(), answers->begin(), answers->end());
  };
  for (size_t at = 0, call = 0; at < count; at += group, ++call) {
    EXPECT_TRUE(sum->Add(vectors.Of(at, std::min(at + group, count))).ok());
    if (call % 2 == 1) settle();
  }
  settle();
  ExactSum whole = cohort.Empty();
  const absl::Status moved = sum->MoveTo(whole);
  EXPECT_TRUE(moved.ok()) << moved;
  EXPECT_EQ(sum->clients(), 0);
  result.bytes = Bytes(whole);
  return result;
}

inline void ExpectSame(const SumResult& device, const SumResult& host) {
  ASSERT_EQ(device.answers.size(), host.answers.size());
  for (size_t i = 0; i < host.answers.size(); ++i)
    EXPECT_EQ(device.answers[i].ToString(), host.answers[i].ToString()) << i;
  EXPECT_EQ(device.bytes, host.bytes);
}

}  // namespace macaw::aggregation
