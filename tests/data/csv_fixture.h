#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/data/test_files.h"

namespace macaw::data {

// Twenty rows: `row(i)`.
template <typename Row>
std::string Table(const std::string& first, const Row& row) {
  std::string text = first + "\n";
  for (int i = 0; i < 20; ++i) absl::StrAppend(&text, row(i), "\n");
  return text;
}

// Reads the text of a table.
class CsvFixture : public testing::Test {
 protected:
  DataOptions With(const std::string& text, DataOptions options = {}) {
    options.source = "csv";
    options.path = folder_.Write("a.csv", text);
    options.test_fraction = 0;
    return options;
  }
  // One client with all rows, to look at what was read.
  std::unique_ptr<Dataset> Whole(const DataOptions& options) {
    auto dataset = OpenDataset(options, {.scheme = "iid", .clients = 1});
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }
  std::string Refusal(const std::string& text, DataOptions options = {}) {
    const auto dataset = OpenDataset(With(text, std::move(options)), {.clients = 1});
    EXPECT_FALSE(dataset.ok()) << "opened";
    const std::string message(dataset.status().message());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  TemporaryFolder folder_;
};

}  // namespace macaw::data
