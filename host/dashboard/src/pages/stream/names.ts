// Names of destinations, the same everywhere on the page of a stream.

import { typesOf, useDrivers, type Destination, type DestinationType } from '../../store';

/** The destination types of the loaded drivers, by title. */
export function useTypes(): DestinationType[] {
  return typesOf(useDrivers().data ?? []);
}

/** Title of a destination type; its name while its driver is not loaded. */
export function titleOf(type: string, types: readonly Pick<DestinationType, 'name' | 'title'>[]): string {
  return types.find(({ name }) => name === type)?.title ?? type;
}

/** Names by id: the title of the type, and a number where several have the same type, from 1 for the oldest. */
export function namesOf(
  destinations: readonly Pick<Destination, 'id' | 'type'>[],
  types: readonly Pick<DestinationType, 'name' | 'title'>[],
): ReadonlyMap<number, string> {
  const named = destinations.map(({ id, type }) => {
    const same = destinations.filter((each) => each.type === type);
    const title = titleOf(type, types);
    return [id, same.length > 1 ? `${title} ${same.filter((each) => each.id <= id).length}` : title] as const;
  });
  return new Map(named);
}

export function useNames(destinations: readonly Destination[]): ReadonlyMap<number, string> {
  return namesOf(destinations, useTypes());
}
