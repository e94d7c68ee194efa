/**
 * Mamba 2 blocks: rules and keys shared by Granite, Nemotron and Falcon.
 * @module
 */
import type { Keys } from "../keys.ts";
import type { Rules } from "../rules.ts";
import { reshape, sizeOf, squeeze, type View } from "../view.ts";
import { negativeExp } from "./kda.ts";

/** One number a head, as files have it: a row each. */
const perHead = (v: View): View => reshape(v, [sizeOf(v.shape), 1]);

export interface MambaMaps {
  readonly in?: (v: View) => View;
  readonly out?: (v: View) => View;
}

/**
 * @param blocks Blocks that have one.
 * @param n_group Groups that the norm is over.
 * @param maps What the family does to the projections.
 */
export function mambaRules(
  r: Rules,
  at: string,
  blocks: ((il: number) => boolean) | undefined,
  n_group: number,
  maps: MambaMaps = {},
): void {
  const here = blocks ? { blocks } : {};
  r.exact(`${at}.A_log`, "blk.{il}.ssm_a", { ...here, map: (v) => perHead(negativeExp(v)) })
    .exact(`${at}.D`, "blk.{il}.ssm_d", { ...here, map: perHead })
    .exact(`${at}.dt_bias`, "blk.{il}.ssm_dt.bias", here)
    .weight(`${at}.conv1d`, "blk.{il}.ssm_conv1d", { ...here, map: squeeze })
    .exact(`${at}.conv1d.bias`, "blk.{il}.ssm_conv1d.bias", { optional: true })
    .weight(`${at}.in_proj`, "blk.{il}.ssm_in", maps.in ? { ...here, map: maps.in } : here)
    .weight(`${at}.norm`, "blk.{il}.ssm_norm", {
      optional: true,
      map: (v) => sizeOf(v.shape) % n_group === 0 ? reshape(v, [n_group, sizeOf(v.shape) / n_group]) : v,
    })
    .weight(`${at}.out_proj`, "blk.{il}.ssm_out", maps.out ? { ...here, map: maps.out } : here);
}

export interface MambaSizes {
  readonly conv: number;
  readonly state: number;
  readonly n_group: number;
  readonly width: number;
  readonly n_head: number;
}

export function mambaKeys(k: Keys, s: MambaSizes): void {
  k.u32("ssm.conv_kernel", s.conv)
    .u32("ssm.state_size", s.state)
    .u32("ssm.group_count", s.n_group)
    .u32("ssm.inner_size", s.width)
    .u32("ssm.time_step_rank", s.n_head);
}
