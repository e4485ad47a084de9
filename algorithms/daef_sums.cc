#include "algorithms/daef_sums.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/status.h"

namespace macaw::algorithms {
namespace {

absl::StatusOr<LayoutPtr> DaefLayout(const LinearChain& chain, size_t layer) {
  if (layer == 0) {
    const auto width = static_cast<int64_t>(chain.layers[0].inputs);
    return ParameterLayout::Make(
        {{.name = "gram", .shape = {width, width}}, {.name = "rows", .shape = {1}}}, DType::kF64);
  }
  const Decoding it = Decoding::Of(chain, layer);
  const auto terms = static_cast<int64_t>(it.terms), targets = static_cast<int64_t>(it.targets);
  return ParameterLayout::Make(
      {{.name = "grams", .shape = {static_cast<int64_t>(it.grams()), terms, terms}},
       {.name = "moments", .shape = {targets, terms}},
       {.name = "squares", .shape = {1}},
       {.name = "rows", .shape = {1}}},
      DType::kF64);
}

class EncoderSums final : public training::RowStatistics {
 public:
  explicit EncoderSums(LayoutPtr layout) : layout_(std::move(layout)) {}

  const LayoutPtr& layout() const override { return layout_; }

  void Add(const training::NumberedRows& rows, ConstVectorView, VectorView sums) const override {
    double* const gram = SumsEntry(sums, EncoderEntry::kGram).data();
    for (size_t r = 0; r < rows.count(); ++r) {
      const std::span<const double> x = rows.row(r);
      for (size_t i = 0; i < rows.width; ++i) {
        if (x[i] == 0) continue;
        for (size_t j = i; j < rows.width; ++j) gram[i * rows.width + j] += x[i] * x[j];
      }
    }
    SumsEntry(sums, EncoderEntry::kRows)[0] += static_cast<double>(rows.count());
  }

 private:
  const LayoutPtr layout_;
};

class DecoderSums final : public training::RowStatistics {
 public:
  DecoderSums(const LinearChain& chain, size_t layer, LayoutPtr layout)
      : chain_(chain), it_(Decoding::Of(chain, layer)), layout_(std::move(layout)) {}

  const LayoutPtr& layout() const override { return layout_; }

  void Add(const training::NumberedRows& rows, ConstVectorView at, VectorView sums) const override {
    DispatchDType(at.dtype(), [&]<typename T>(T) {
      Row row{.u = std::vector<double>(it_.terms, 1.0)};
      for (size_t r = 0; r < rows.count(); ++r) {
        Forward(at.As<T>(), rows.row(r), row);
        AddRow(row, sums);
      }
    });
    SumsEntry(sums, DecoderEntry::kRows)[0] += static_cast<double>(rows.count());
  }

 private:
  struct Row {
    std::vector<double> u;       // ũ
    std::vector<double> z, h;    // of the layer before: what comes into its activation, and out
    std::vector<double> target;  // z, or x
    std::vector<double> weight;  // f'(z)², one where outputs are alike
    std::vector<double> in = {};
  };

  // `model`: solved for before this layer, and random in it.
  template <typename T>
  void Forward(std::span<const T> model, std::span<const double> x, Row& row) const {
    row.h.assign(x.begin(), x.end());
    for (size_t l = 0; l < it_.layer; ++l) Through(chain_.layers[l], model, row);
    row.weight.assign(it_.grams(), 1.0);
    if (it_.last) {
      row.target.assign(x.begin(), x.end());
      std::ranges::copy(row.h, row.u.begin());
      return;
    }
    row.target = row.z;
    if (!it_.alike) {
      for (size_t k = 0; k < it_.targets; ++k) {
        const double slope = SlopeAt(chain_.layers[it_.layer - 1].after, row.h[k]);
        row.weight[k] = slope * slope;
      }
    }
    Through(chain_.layers[it_.layer], model, row);
    std::ranges::copy(row.h, row.u.begin());
  }

  template <typename T>
  static void Through(const LinearChain::Layer& layer, std::span<const T> model, Row& row) {
    std::swap(row.in, row.h);
    row.z.resize(layer.outputs);
    row.h.resize(layer.outputs);
    layer.Apply<T>(model, row.in, row.z);
    for (size_t k = 0; k < layer.outputs; ++k) row.h[k] = Activate(layer.after, row.z[k]);
  }

  void AddRow(const Row& row, VectorView sums) const {
    const size_t terms = it_.terms;
    for (size_t g = 0; g < it_.grams(); ++g) {
      double* const gram = SumsEntry(sums, DecoderEntry::kGrams).data() + g * terms * terms;
      for (size_t i = 0; i < terms; ++i) {
        const double weighted = row.weight[g] * row.u[i];
        for (size_t j = i; j < terms; ++j) gram[i * terms + j] += weighted * row.u[j];
      }
    }
    double* const moments = SumsEntry(sums, DecoderEntry::kMoments).data();
    for (size_t k = 0; k < it_.targets; ++k) {
      const double weighted = row.weight[it_.alike ? 0 : k] * row.target[k];
      for (size_t i = 0; i < terms; ++i) moments[k * terms + i] += weighted * row.u[i];
      SumsEntry(sums, DecoderEntry::kSquares)[0] += weighted * row.target[k];
    }
  }

  const LinearChain chain_;
  const Decoding it_;
  const LayoutPtr layout_;
};

}  // namespace

Decoding Decoding::Of(const LinearChain& chain, size_t layer) {
  const LinearChain::Layer& it = chain.layers[layer];
  const bool last = layer + 1 == chain.layers.size();
  return {.layer = layer,
          .last = last,
          .terms = last ? it.inputs + (it.bias ? 1 : 0) : it.outputs + 1,
          .targets = last ? it.outputs : it.inputs,
          .alike = last || chain.layers[layer - 1].after == Activation::kNone};
}

absl::StatusOr<std::vector<LayoutPtr>> DaefLayouts(const LinearChain& chain) {
  std::vector<LayoutPtr> layouts(chain.layers.size());
  for (size_t l = 0; l < layouts.size(); ++l) {
    MACAW_ASSIGN_OR_RETURN(layouts[l], DaefLayout(chain, l));
  }
  return layouts;
}

PhaseSums DaefSums(const LinearChain& chain, const std::vector<LayoutPtr>& layouts) {
  PhaseSums sums = {std::make_shared<EncoderSums>(layouts[0])};
  for (size_t l = 1; l < layouts.size(); ++l)
    sums.push_back(std::make_shared<DecoderSums>(chain, l, layouts[l]));
  return sums;
}

}  // namespace macaw::algorithms
