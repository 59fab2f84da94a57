import{a}from"./chunk-PESZNZ5P.js";export{a as messages};
