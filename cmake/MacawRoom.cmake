# macaw_unity(target): with MACAW_UNITY, its sources are compiled eight at a time. So names that are local to a source
# must differ from those of the other sources of the target. Sources with compile options of their own stay alone.
function(macaw_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MACAW_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# macaw_room(core SOURCES a.cc b.cc ALONE c.cc LINKS absl::status ... PRIVATE_LINKS spdlog::spdlog)
# One static library per room (or per torch-free half of one). Includes are written from the project's root. ALONE: the
# sources that are never compiled together with others (kernels, what names LibTorch).
function(macaw_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;LINKS;PRIVATE_LINKS" ${ARGN})
  if(ARG_SOURCES OR ARG_ALONE)
    add_library(macaw_${name} STATIC ${ARG_SOURCES} ${ARG_ALONE})
    macaw_unity(macaw_${name})
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_include_directories(macaw_${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(macaw_${name} PUBLIC ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS} macaw_warnings)
  else()
    add_library(macaw_${name} INTERFACE)
    target_include_directories(macaw_${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(macaw_${name} INTERFACE ${ARG_LINKS})
  endif()
  add_library(macaw::${name} ALIAS macaw_${name})
endfunction()

# macaw_loads_modules(program): a plug-in or a back end takes what it uses of these rooms from the program that loads
# it, so that a process has one copy of each. So the program exports its symbols, and has all objects of the rooms
# and not only those that it uses itself.
set(MACAW_SDK_ROOMS core plan data device aggregation models_spec training_api codecs algorithms_api algorithms_around algorithms sdk)
function(macaw_loads_modules target)
  foreach(room IN LISTS MACAW_SDK_ROOMS)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:macaw_${room}>)
    target_link_libraries(${target} PRIVATE macaw::${room})
  endforeach()
  set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON)
endfunction()

# macaw_test(core LABEL unit SOURCES a_test.cc ... LINKS macaw::core) : one test binary per room; every TEST in it
# becomes a ctest test of its own. Labels: unit (fast), slow. HEADERS: precompiled ones in place of those of all tests.
# PLAIN: sources without them, since GCC 12 warns of its own std::string there.
function(macaw_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LINKS;HEADERS;PLAIN" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(CMAKE_CROSSCOMPILING)  # an emulator is ten times slower
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 10")
  endif()
  add_executable(${name}_test ${ARG_SOURCES} ${ARG_PLAIN})
  if(ARG_PLAIN)
    set_source_files_properties(${ARG_PLAIN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  macaw_unity(${name}_test)
  set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE ${ARG_LINKS} macaw_warnings GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name}_test PRIVATE
    MACAW_SOURCE_DIR="${PROJECT_SOURCE_DIR}" MACAW_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  # Test code is compiled once and runs briefly, so -O1 saves a fifth of its build. Kernels included by tests stay at -O3.
  if(name MATCHES "training|device")  # GCC 12 warns of its own std::string where sources are together
    target_compile_options(${name}_test PRIVATE $<$<AND:$<CXX_COMPILER_ID:GNU>,$<COMPILE_LANGUAGE:CXX>>:-Wno-maybe-uninitialized>)
  elseif(CMAKE_BUILD_TYPE STREQUAL Release)
    target_compile_options(${name}_test PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
    if(NOT ARG_HEADERS AND TARGET macaw_test_headers)
      target_precompile_headers(${name}_test REUSE_FROM macaw_test_headers)
      # -pthread defines a macro, and gRPC asks for it. GCC 12 warns of its own std::string where it is precompiled.
      target_compile_options(${name}_test PRIVATE
        "$<$<COMPILE_LANGUAGE:CXX>:-pthread;$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overread>>")
    endif()
  endif()
  if(ARG_HEADERS)
    target_precompile_headers(${name}_test PRIVATE ${ARG_HEADERS})
  endif()
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}: NO_PRETTY_VALUES DISCOVERY_TIMEOUT 120 DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()
