#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

// Writes .npy and .npz files as NumPy does.
namespace macaw::data {

template <typename T>
std::string Little(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// `more`: text in the header in place of "'fortran_order': False".
inline std::string NpyBytes(const std::string& type, const std::vector<uint64_t>& shape,
                            const std::string& data,
                            const std::string& order = "'fortran_order': False",
                            uint8_t version = 1) {
  std::string header =
      absl::StrCat("{'descr': '", type, "', ", order, ", 'shape': (", absl::StrJoin(shape, ", "),
                   shape.size() == 1 ? "," : "", "), }");
  const size_t start = version == 1 ? 10 : 12;
  while ((start + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  const std::string size = version == 1 ? Little(static_cast<uint16_t>(header.size()))
                                        : Little(static_cast<uint32_t>(header.size()));
  return absl::StrCat("\x93NUMPY", std::string(1, static_cast<char>(version)), std::string(1, '\0'),
                      size, header, data);
}

template <typename T>
std::string NpyOf(const std::string& type, const std::vector<uint64_t>& shape,
                  const std::vector<T>& values) {
  std::string data(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(data.data(), values.data(), data.size());
  return NpyBytes(type, shape, data);
}

struct ZipFile {
  std::string name, bytes;
  // What the directory says, where it is to lie; 0: the truth.
  uint64_t claimed = 0;
  uint16_t method = 0, flags = 0;
  uint32_t crc_error = 0;
};
enum class Packing { kStored, kDeflated, kWide };  // kWide: stored, with 64-bit sizes

inline std::string Deflated(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, bytes.size()) + 16, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string ZipBytes(const std::vector<ZipFile>& files, Packing packing = Packing::kStored) {
  const bool wide = packing == Packing::kWide;
  std::string bytes, directory;
  for (const ZipFile& file : files) {
    const std::string packed = packing == Packing::kDeflated ? Deflated(file.bytes) : file.bytes;
    const uint64_t at = bytes.size(), size = file.claimed > 0 ? file.claimed : file.bytes.size();
    const uint16_t method = file.method > 0
                                ? file.method
                                : static_cast<uint16_t>(packing == Packing::kDeflated ? 8 : 0);
    const uint32_t crc = file.crc_error ^ static_cast<uint32_t>(crc32_z(
                                              0, reinterpret_cast<const Bytef*>(file.bytes.data()),
                                              file.bytes.size()));
    const auto number = [&](uint64_t n) {
      return Little(wide ? UINT32_MAX : static_cast<uint32_t>(n));
    };
    const std::string local_extra = wide ? Little<uint16_t>(1) + Little<uint16_t>(16) +
                                               Little(size) + Little<uint64_t>(packed.size())
                                         : "";
    const std::string extra = wide ? Little<uint16_t>(1) + Little<uint16_t>(24) + Little(size) +
                                         Little<uint64_t>(packed.size()) + Little(at)
                                   : "";
    const std::string common = Little<uint16_t>(45) + Little(file.flags) + Little(method) +
                               std::string(4, '\0') + Little(crc) + number(packed.size()) +
                               number(size) + Little(static_cast<uint16_t>(file.name.size()));
    bytes += absl::StrCat("PK\x03\x04", common, Little(static_cast<uint16_t>(local_extra.size())),
                          file.name, local_extra, packed);
    directory += absl::StrCat("PK\x01\x02", Little<uint16_t>(45), common,
                              Little(static_cast<uint16_t>(extra.size())), std::string(10, '\0'),
                              number(at), file.name, extra);
    // Between them: comment, disk and attributes, ten bytes of zeros.
  }
  const uint64_t at = bytes.size();
  bytes += directory;
  if (wide) {
    const uint64_t end = bytes.size();
    bytes += absl::StrCat("PK\x06\x06", Little<uint64_t>(44), std::string(12, '\0'),
                          Little<uint64_t>(files.size()), Little<uint64_t>(files.size()),
                          Little<uint64_t>(directory.size()), Little(at));
    bytes += absl::StrCat("PK\x06\x07", Little<uint32_t>(0), Little(end), Little<uint32_t>(1));
  }
  const auto count = wide ? UINT16_MAX : static_cast<uint16_t>(files.size());
  bytes +=
      absl::StrCat("PK\x05\x06", std::string(4, '\0'), Little<uint16_t>(count),
                   Little<uint16_t>(count), Little(static_cast<uint32_t>(directory.size())),
                   Little(wide ? UINT32_MAX : static_cast<uint32_t>(at)), std::string(2, '\0'));
  return bytes;
}

}  // namespace macaw::data
