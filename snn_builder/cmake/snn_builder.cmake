# SPDX-License-Identifier: Apache-2.0
# snn_builder_add_network(TARGET MODEL file.nir [NAME n] [QUANTIZE] [DT s] [RESET zero|subtract] [RESET_DELAY n]
#                         [KERNEL k] [FORM f] [INPUT_SCALE e] [WEIGHTS_SECTION s] [OPTIONS word...])
#
# Makes the static library TARGET of a network; who links it finds the header, NAME.h (without NAME: snn_network.h). The keywords are
# the options of `python -m snn_builder generate`, and OPTIONS any of them as they are. A relative MODEL is in the source directory.
#
# Found with:
#   find_package(Python3 REQUIRED COMPONENTS Interpreter)
#   execute_process(COMMAND ${Python3_EXECUTABLE} -m snn_builder cmake-dir OUTPUT_VARIABLE dir OUTPUT_STRIP_TRAILING_WHITESPACE)
#   include(${dir}/snn_builder.cmake)
#
# When the model changes, only the C files whose text changes are compiled again: `generate` leaves the others alone. So their times
# say nothing about whether it has run; the stamp does, and the files themselves are by-products.
cmake_minimum_required(VERSION 3.20)

if(NOT Python3_EXECUTABLE)
  find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)
endif()

function(snn_builder_add_network target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "QUANTIZE" "MODEL;NAME;DT;RESET;RESET_DELAY;KERNEL;FORM;INPUT_SCALE;WEIGHTS_SECTION" "OPTIONS")
  if(NOT arg_MODEL)
    message(FATAL_ERROR "snn_builder_add_network(${target}): no MODEL; add MODEL file.nir")
  endif()
  if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "snn_builder_add_network(${target}): unknown or without a value: "
                        "${arg_UNPARSED_ARGUMENTS} ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  if(NOT arg_NAME)
    set(arg_NAME snn_network)
  endif()
  cmake_path(ABSOLUTE_PATH arg_MODEL BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)

  set(words --name ${arg_NAME})
  if(arg_QUANTIZE)
    list(APPEND words --quantize)
  endif()
  foreach(option DT RESET RESET_DELAY KERNEL FORM INPUT_SCALE WEIGHTS_SECTION)
    if(DEFINED arg_${option})
      string(TOLOWER ${option} word)
      string(REPLACE "_" "-" word ${word})
      list(APPEND words "--${word}=${arg_${option}}")
    endif()
  endforeach()

  set(out "${CMAKE_CURRENT_BINARY_DIR}/${target}")
  set(stamp "${out}/${arg_NAME}.stamp")
  set(sources "${out}/${arg_NAME}.h" "${out}/${arg_NAME}.c" "${out}/${arg_NAME}_weights.c")
  add_custom_command(
    OUTPUT "${stamp}"
    BYPRODUCTS ${sources} "${out}/${arg_NAME}.json" "${out}/${arg_NAME}.mlir" "${out}/${arg_NAME}.lowered.mlir"
    COMMAND "${Python3_EXECUTABLE}" -m snn_builder generate "${arg_MODEL}" -o "${out}" ${words} ${arg_OPTIONS}
            --depfile "${stamp}.d" --stamp "${stamp}"
    DEPENDS "${arg_MODEL}"
    DEPFILE "${stamp}.d"
    COMMENT "Compiling network ${arg_NAME}"
    VERBATIM)

  add_library(${target} STATIC ${sources} "${stamp}")
  set_source_files_properties(${sources} "${stamp}" PROPERTIES GENERATED TRUE)
  target_include_directories(${target} PUBLIC "${out}")
  target_compile_features(${target} PRIVATE c_std_11)
  # the generated file refuses to compile where contraction would change bits
  target_compile_options(${target} PRIVATE $<$<C_COMPILER_ID:GNU,Clang,AppleClang>:-ffp-contract=off>)
  target_compile_definitions(${target} PRIVATE $<$<C_COMPILER_ID:GNU,Clang,AppleClang>:SNN_FP_CONTRACT_OFF>)
endfunction()
