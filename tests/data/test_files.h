#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/files.h"
#include "data/dataset.h"
#include "data/options.h"
#include "testing/temporary_folder.h"

namespace macaw::data {

using testing_support::TemporaryFolder;

inline std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

// `count` images of 2 x 3 whose pixels count up from the row's number; labels repeat `classes`.
inline std::string IdxImages(uint32_t count) {
  std::string bytes = BigEndian(0x803) + BigEndian(count) + BigEndian(2) + BigEndian(3);
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t p = 0; p < 6; ++p) bytes += static_cast<char>(i + p);
  }
  return bytes;
}
inline std::string IdxLabels(uint32_t count, uint32_t classes) {
  std::string bytes = BigEndian(0x801) + BigEndian(count);
  for (uint32_t i = 0; i < count; ++i) bytes += static_cast<char>(i % classes);
  return bytes;
}

inline std::string Gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// Everything in a dataset, as values that can be compared.
struct RowCopy {
  std::string features;
  int32_t label = 0;
  float target = 0;
  friend auto operator<=>(const RowCopy&, const RowCopy&) = default;
};
inline std::vector<RowCopy> Copy(const Rows& rows) {
  std::vector<RowCopy> copies;
  for (uint64_t i = 0; i < rows.size(); ++i) {
    const uint64_t row = rows.at(i);
    RowCopy copy;
    copy.features.assign(
        reinterpret_cast<const char*>(rows.block.features) + row * rows.block.row_bytes,
        rows.block.row_bytes);
    if (rows.block.classes != nullptr) copy.label = rows.block.classes[row];
    if (rows.block.targets != nullptr) copy.target = rows.block.targets[row];
    copies.push_back(copy);
  }
  return copies;
}
// The numbers of rows of IdxImages.
inline std::set<int> NumbersOf(const std::vector<RowCopy>& rows) {
  std::set<int> numbers;
  for (const RowCopy& row : rows) numbers.insert(static_cast<unsigned char>(row.features[0]));
  return numbers;
}
inline std::vector<RowCopy> Copy(const Dataset& dataset, uint64_t client, Split split) {
  const absl::StatusOr<Rows> rows = dataset.Client(ClientId(client), split);
  EXPECT_TRUE(rows.ok()) << rows.status();
  if (!rows.ok()) return {};
  EXPECT_EQ(rows->size(), dataset.Examples(ClientId(client), split));
  return Copy(*rows);
}
constexpr Split kAllSplits[] = {Split::kTrain, Split::kValidation, Split::kTest};

inline std::vector<std::vector<RowCopy>> CopyAll(const Dataset& dataset) {
  std::vector<std::vector<RowCopy>> all;
  for (uint64_t c = 0; c < dataset.info().clients; ++c) {
    for (const Split split : kAllSplits) all.push_back(Copy(dataset, c, split));
  }
  all.push_back(Copy(dataset.CentralTest()));
  return all;
}

inline std::vector<float> Floats(const RowCopy& row) {
  std::vector<float> values(row.features.size() / sizeof(float));
  std::memcpy(values.data(), row.features.data(), row.features.size());
  return values;
}

}  // namespace macaw::data
