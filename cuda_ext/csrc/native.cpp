// The Python face of the host-side core: module `nodeloom.cuda_ext._native`. Its types are in ../_native.pyi.
#include <pybind11/pybind11.h>

#include "allocator.hpp"

namespace py = pybind11;

namespace {

// Raised by one on every change of what Python sees here; cuda_ext/__init__.py refuses a module of another number,
// such as a stale one that an old build left behind.
constexpr int kAbi = 1;

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* kCompiler = "gcc " __VERSION__;
#else
constexpr const char* kCompiler = "unknown";
#endif

}  // namespace

PYBIND11_MODULE(_native, module) {
  using nodeloom::Allocator;
  module.doc() = "Native core of nodeloom: allocators.";
  module.attr("ABI") = kAbi;
  module.attr("COMPILER") = kCompiler;
  module.attr("UNIT_BYTES") = nodeloom::kUnitBytes;

  py::register_exception<nodeloom::ArenaFull>(module, "ArenaFull", PyExc_RuntimeError);

  // std::invalid_argument becomes ValueError. The GIL stays held: it is what serialises the owner's threads, and
  // a call takes about a microsecond.
  py::class_<Allocator>(module, "Allocator")
      .def("alloc", &Allocator::alloc, py::arg("nbytes"))
      .def("free", &Allocator::free, py::arg("offset"))
      .def_property_readonly("used_bytes", &Allocator::used_bytes)
      .def_property_readonly("capacity_bytes", &Allocator::capacity_bytes)
      .def_property_readonly("largest_free_bytes", &Allocator::largest_free_bytes)
      .def_property_readonly("num_blocks", &Allocator::num_blocks);
  py::class_<nodeloom::BuddyAllocator, Allocator>(module, "BuddyAllocator")
      .def(py::init<std::size_t>(), py::arg("capacity_bytes"));
  py::class_<nodeloom::BestFitAllocator, Allocator>(module, "BestFitAllocator")
      .def(py::init<std::size_t>(), py::arg("capacity_bytes"));
}
