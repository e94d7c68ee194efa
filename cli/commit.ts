/** The commit a release was built from; `scripts/compile.ts` writes it into the bundle. */
export const COMMIT: string = Deno.env.get("BLOOMERY_COMMIT") ?? "source";
