/**
 * Flags that say where a model's weights lie, and what they mean to an engine.
 * @module
 */
import type { EngineOptions } from "../core/engine/mod.ts";
import type { Flag, Flags } from "./command.ts";
import { parseSize } from "./size.ts";

export const PLACE_FLAGS: readonly Flag[] = [
  {
    name: "place",
    type: "string",
    value: "PLACE",
    default: "auto",
    choices: ["auto", "host"],
    help:
      "where the weights go: host = the same as --device cpu; experts that do not fit the host's memory are read from the " +
      "drive as tokens need them",
  },
  {
    name: "host-room",
    type: "string",
    value: "SIZE",
    help: "host memory that the model may take, such as 8G; default: what is free, less a tenth",
  },
  {
    name: "expert-rank",
    type: "string",
    value: "FILE",
    help:
      "which experts stay in memory first, where not all do: a .json file of bloomery rank, or an importance matrix",
  },
];

/** What the flags ask of an engine. @throws {UsageError} `usage.size` @throws {FormatError} `format.rank`, `format.imatrix` */
export async function placementOf(flags: Flags): Promise<Pick<EngineOptions, "hostRoom" | "rank">> {
  const room = flags.str("host-room"), rank = flags.str("expert-rank");
  return {
    ...(room === undefined ? {} : { hostRoom: parseSize(room, "host-room") }),
    ...(rank === undefined ? {} : { rank: await (await import("./residency.ts")).readRank(rank) }),
  };
}
