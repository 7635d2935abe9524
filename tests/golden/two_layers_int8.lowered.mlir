module attributes {snn.generator = "snn-builder test", snn.kernel = "dense", snn.mode = "int8", snn.name = "net"} {
  func.func private @sat32(%x: i64 loc("x")) -> i32 {
    %c-2147483648_i64 = arith.constant -2147483648 : i64
    %0 = arith.cmpi slt, %x, %c-2147483648_i64 : i64
    %c2147483647_i64 = arith.constant 2147483647 : i64
    %1 = arith.cmpi sgt, %x, %c2147483647_i64 : i64
    %c2147483647_i32 = arith.constant 2147483647 : i32
    %2 = arith.trunci %x : i64 to i32
    %3 = arith.select %1, %c2147483647_i32, %2 : i32
    %c-2147483648_i32 = arith.constant -2147483648 : i32
    %4 = arith.select %0, %c-2147483648_i32, %3 : i32
    return %4 : i32
  }
  memref.global constant @fc1_w : memref<4x6xi8>
  memref.global constant @fc2_w : memref<2x4xi8>
  memref.global constant @fc2_b : memref<2xi32>
  memref.global constant @lif2_decay : memref<2xi32>
  func.func @init(%lif1_v: memref<4xi32> {snn.name = "lif1_v", snn.role = "state"} loc("lif1_v"), %lif2_i: memref<2xi32> {snn.name = "lif2_i", snn.role = "state"} loc("lif2_i"), %lif2_v: memref<2xi32> {snn.name = "lif2_v", snn.role = "state"} loc("lif2_v"), %lif1_spikes: memref<4xi8> {snn.name = "lif1_spikes", snn.role = "state"} loc("lif1_spikes")) {
    %c0_i32 = arith.constant 0 : i32
    linalg.fill ins(%c0_i32 : i32) outs(%lif1_v : memref<4xi32>) loc("lif1_v (at rest)")
    %c0_i32_0 = arith.constant 0 : i32
    linalg.fill ins(%c0_i32_0 : i32) outs(%lif2_i : memref<2xi32>) loc("lif2_i (at rest)")
    %c0_i32_1 = arith.constant 0 : i32
    linalg.fill ins(%c0_i32_1 : i32) outs(%lif2_v : memref<2xi32>) loc("lif2_v (at rest)")
    %c0_i8 = arith.constant 0 : i8
    linalg.fill ins(%c0_i8 : i8) outs(%lif1_spikes : memref<4xi8>) loc("lif1_spikes (at rest)")
    return
  }
  func.func @step(%lif1_v: memref<4xi32> {snn.name = "lif1_v", snn.role = "state"} loc("lif1_v"), %lif2_i: memref<2xi32> {snn.name = "lif2_i", snn.role = "state"} loc("lif2_i"), %lif2_v: memref<2xi32> {snn.name = "lif2_v", snn.role = "state"} loc("lif2_v"), %lif1_spikes: memref<4xi8> {snn.name = "lif1_spikes", snn.role = "state"} loc("lif1_spikes"), %in: memref<6xi8> {snn.name = "in", snn.role = "input"} loc("in"), %out: memref<2xi8> {snn.name = "out", snn.role = "output"} loc("out")) {
    %fc1_w = memref.get_global @fc1_w : memref<4x6xi8> loc("fc1_w")
    %fc2_w = memref.get_global @fc2_w : memref<2x4xi8> loc("fc2_w")
    %fc2_b = memref.get_global @fc2_b : memref<2xi32> loc("fc2_b")
    %lif2_decay = memref.get_global @lif2_decay : memref<2xi32> loc("lif2_decay")
    %fc1 = memref.alloca() : memref<4xi32> loc("fc1")
    %fc2 = memref.alloca() : memref<2xi32> loc("fc2")
    %c0_i32 = arith.constant 0 : i32
    linalg.fill ins(%c0_i32 : i32) outs(%fc1 : memref<4xi32>) loc("fc1 (Linear 6 -> 4)")
    linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%fc1_w, %in : memref<4x6xi8>, memref<6xi8>) outs(%fc1 : memref<4xi32>) {
    ^bb0(%in_1: i8, %in_2: i8, %out_3: i32):
      %0 = arith.extsi %in_1 : i8 to i32
      %1 = arith.extsi %in_2 : i8 to i32
      %2 = arith.muli %0, %1 overflow<nsw> : i32
      %3 = arith.addi %out_3, %2 overflow<nsw> : i32
      linalg.yield %3 : i32
    } loc("fc1 (Linear 6 -> 4)")
    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%fc1 : memref<4xi32>) outs(%fc1 : memref<4xi32>) {
    ^bb0(%in_1: i32, %out_2: i32):
      %c64_i32 = arith.constant 64 : i32
      %0 = arith.muli %in_1, %c64_i32 overflow<nsw> : i32
      linalg.yield %0 : i32
    } loc("fc1 (to Q12: << 6)")
    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%fc1 : memref<4xi32>) outs(%lif1_v, %lif1_spikes : memref<4xi32>, memref<4xi8>) {
    ^bb0(%in_1: i32, %out_2: i32, %out_3: i8):
      %c3686_i32 = arith.constant 3686 : i32
      %0 = arith.extsi %c3686_i32 : i32 to i64
      %1 = arith.extsi %out_2 : i32 to i64
      %2 = arith.muli %0, %1 overflow<nsw> : i64
      %c12_i64 = arith.constant 12 : i64
      %3 = arith.shrsi %2, %c12_i64 : i64
      %4 = arith.extsi %in_1 : i32 to i64
      %5 = arith.addi %3, %4 overflow<nsw> : i64
      %v = func.call @sat32(%5) : (i64) -> i32 loc("v")
      %c4096_i32 = arith.constant 4096 : i32
      %fired = arith.cmpi sgt, %v, %c4096_i32 : i32 loc("fired")
      %c0_i32_4 = arith.constant 0 : i32
      %6 = arith.select %fired, %c0_i32_4, %v : i32
      %7 = arith.extui %fired : i1 to i8
      linalg.yield %6, %7 : i32, i8
    } loc("lif1 (LIF 4)")
    %c0_i32_0 = arith.constant 0 : i32
    linalg.fill ins(%c0_i32_0 : i32) outs(%fc2 : memref<2xi32>) loc("fc2 (Affine 4 -> 2)")
    linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%fc2_w, %lif1_spikes : memref<2x4xi8>, memref<4xi8>) outs(%fc2 : memref<2xi32>) {
    ^bb0(%in_1: i8, %in_2: i8, %out_3: i32):
      %0 = arith.extsi %in_1 : i8 to i32
      %1 = arith.extsi %in_2 : i8 to i32
      %2 = arith.muli %0, %1 overflow<nsw> : i32
      %3 = arith.addi %out_3, %2 overflow<nsw> : i32
      linalg.yield %3 : i32
    } loc("fc2 (Affine 4 -> 2)")
    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%fc2_b : memref<2xi32>) outs(%fc2 : memref<2xi32>) {
    ^bb0(%in_1: i32, %out_2: i32):
      %0 = arith.addi %out_2, %in_1 overflow<nsw> : i32
      linalg.yield %0 : i32
    } loc("fc2 (Affine 4 -> 2)")
    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%fc2 : memref<2xi32>) outs(%fc2 : memref<2xi32>) {
    ^bb0(%in_1: i32, %out_2: i32):
      %0 = arith.extsi %in_1 : i32 to i64
      %c128_i64 = arith.constant 128 : i64
      %1 = arith.muli %0, %c128_i64 overflow<nsw> : i64
      %2 = func.call @sat32(%1) : (i64) -> i32
      linalg.yield %2 : i32
    } loc("fc2 (to Q12: << 7)")
    linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%fc2, %lif2_decay : memref<2xi32>, memref<2xi32>) outs(%lif2_i, %lif2_v, %out : memref<2xi32>, memref<2xi32>, memref<2xi8>) {
    ^bb0(%in_1: i32, %in_2: i32, %out_3: i32, %out_4: i32, %out_5: i8):
      %c2048_i32 = arith.constant 2048 : i32
      %0 = arith.extsi %c2048_i32 : i32 to i64
      %1 = arith.extsi %out_3 : i32 to i64
      %2 = arith.muli %0, %1 overflow<nsw> : i64
      %c12_i64 = arith.constant 12 : i64
      %3 = arith.shrsi %2, %c12_i64 : i64
      %4 = arith.extsi %in_1 : i32 to i64
      %5 = arith.addi %3, %4 overflow<nsw> : i64
      %current = func.call @sat32(%5) : (i64) -> i32 loc("current")
      %6 = arith.extsi %in_2 : i32 to i64
      %7 = arith.extsi %out_4 : i32 to i64
      %8 = arith.muli %6, %7 overflow<nsw> : i64
      %c12_i64_6 = arith.constant 12 : i64
      %9 = arith.shrsi %8, %c12_i64_6 : i64
      %c-41_i32 = arith.constant -41 : i32
      %10 = arith.extsi %current : i32 to i64
      %11 = arith.addi %9, %10 overflow<nsw> : i64
      %12 = arith.extsi %c-41_i32 : i32 to i64
      %13 = arith.addi %11, %12 overflow<nsw> : i64
      %v = func.call @sat32(%13) : (i64) -> i32 loc("v")
      %c2048_i32_7 = arith.constant 2048 : i32
      %fired = arith.cmpi sgt, %v, %c2048_i32_7 : i32 loc("fired")
      %c0_i32_8 = arith.constant 0 : i32
      %14 = arith.select %fired, %c0_i32_8, %v : i32
      %15 = arith.extui %fired : i1 to i8
      linalg.yield %current, %14, %15 : i32, i32, i8
    } loc("lif2 (CubaLIF 2)")
    return
  }
}
